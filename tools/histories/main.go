// Judges histories of a journal and of its workers with Porcupine: is there an order of the calls, each between its begin and its
// end, in which one after the other would have given these results?
//
// Reads a history in each line, and prints a word for each: Ok, Illegal or Unknown (it took too long).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 60 * time.Second

type call struct {
	Client int      `json:"client"`
	Kind   string   `json:"kind"`
	Values []string `json:"values"` // given or found, each followed by a semicolon
	First  int      `json:"first"`  // sequence of the first of them; -1: not known
	Call   int64    `json:"call"`   // nanoseconds of CLOCK_MONOTONIC
	Return *int64   `json:"return"` // null: its process was killed in it, so it may take effect at any later time, or never
}

type history struct {
	Model string `json:"model"`
	Calls []call `json:"calls"`
}

// The journal is a log. Its state is all values, one after the other.
var log = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		before, made := state.(string), input.(call)
		if made.Kind == "read" {
			return before == strings.Join(made.Values, ""), before
		}
		if made.First >= 0 && made.First != strings.Count(before, ";") {
			return false, before
		}
		return true, before + strings.Join(made.Values, "")
	},
}

// What a worker may see of one record: it is there, one client has it, or it is finished.
const (
	missing  = -3
	free     = -2
	finished = -1
)

var work = porcupine.Model{
	Init: func() interface{} { return missing },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		before, made := state.(int), input.(call)
		mine := before == made.Client
		switch made.Kind {
		case "append":
			return before == missing, free
		case "take":
			return before == free, made.Client
		case "ack":
			return mine, finished
		case "release":
			return mine, free
		case "maybe-ack": // its process was killed in it
			if mine {
				return true, finished
			}
			return true, before
		case "leave": // closed, killed, or killed in giving back
			if mine {
				return true, free
			}
			return true, before
		case "end": // at the end of the history nothing was left to take
			return before == finished || before == missing, before
		}
		panic("unknown call " + made.Kind)
	},
}

func operations(calls []call) []porcupine.Operation {
	var made []porcupine.Operation
	for _, each := range calls {
		end := int64(math.MaxInt64)
		if each.Return != nil {
			end = *each.Return
		}
		made = append(made, porcupine.Operation{ClientId: each.Client, Input: each, Call: each.Call, Return: end})
	}
	return made
}

// Each record is judged by itself: a call on several is one on each.
func byRecord(calls []call) [][]call {
	records := map[string][]call{}
	for _, each := range calls {
		for _, value := range each.Values {
			records[value] = append(records[value], each)
		}
	}
	var names []string
	for name := range records {
		names = append(names, name)
	}
	sort.Strings(names)
	var all [][]call
	for _, name := range names {
		all = append(all, records[name])
	}
	return all
}

func judge(told history) porcupine.CheckResult {
	if told.Model == "log" {
		return porcupine.CheckOperationsTimeout(log, operations(told.Calls), patience)
	}
	for _, calls := range byRecord(told.Calls) {
		if result := porcupine.CheckOperationsTimeout(work, operations(calls), patience); result != porcupine.Ok {
			return result
		}
	}
	return porcupine.Ok
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		var told history
		if err := json.Unmarshal(lines.Bytes(), &told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		fmt.Println(judge(told))
	}
}
