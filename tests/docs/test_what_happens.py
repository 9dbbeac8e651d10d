"""Each row of the table "What happens when …" in docs/kafka-failures.md is shown by a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KAFKA = ROOT / "tests" / "kafka"

# The beginning of a row, and the tests that show it, as FILE::FUNCTION below tests/kafka without test_.
SHOWN_BY = {
    "it is killed": ["kills::a_mirror_killed_at_random_delivers_each_record_once",
                     "kills::a_capture_killed_at_random_has_every_message_once"],
    "there are two mirrors": ["kills::a_second_mirror_of_the_same_subscriber_is_refused",
                              "takeover::the_newcomer_wins_under_load"],
    "a stopped mirror wakes": ["kills::a_stopped_mirror_that_wakes_too_late_adds_nothing"],
    "the broker is killed": ["broker_faults::a_broker_killed_and_restarted_has_every_record_once",
                             "broker_faults::a_capture_outlives_its_broker"],
    "the broker is away": ["broker_faults::a_broker_that_is_away_for_long_costs_only_time",
                           "topology::a_dead_broker_is_seen_while_nothing_moves"],
    "there is no broker": ["command::no_broker_is_one_line_and_exit_code_1"],
    "the broker hangs": ["broker_faults::a_broker_that_is_away_for_long_costs_only_time"],
    "too few replicas": ["broker_faults::too_few_replicas_are_told_and_nothing_is_lost"],
    "credentials or ACLs": ["rights::a_mirror_whose_right_is_taken_away_ends",
                            "rights::a_capture_whose_right_is_taken_away_ends"],
    "a record is larger": ["mirror::a_record_that_is_too_large_stops_it_after_those_before",
                           "mirror::a_time_that_the_topic_does_not_allow_is_refused",
                           "mirror::a_record_without_key_is_refused_by_a_compacted_topic",
                           "mirror::a_record_that_the_topic_refuses_is_skipped_if_wished"],
    "the name of a header": ["header_names::a_name_that_is_not_utf_8_is_a_refused_record",
                             "header_names::a_name_with_a_nul_is_a_refused_record"],
    "the broker alone refuses": ["mirror::a_record_that_only_the_broker_refuses_is_found"],
    "the topic is deleted": ["topology::an_idle_capture_ends_when_its_topic_is_deleted",
                             "topology::an_idle_mirror_ends_when_its_topic_is_deleted",
                             "topology::an_idle_capture_ends_when_its_topic_is_remade",
                             "topology::topics_of_a_pattern_come_and_go",
                             "takeover::a_topic_deleted_under_load_ends_it"],
    "the topic with the dead letters": ["letters::a_flow_goes_on_after_its_topic_of_dead_letters_was_deleted",
                                        "letters::a_topic_of_dead_letters_that_is_deleted_while_a_flow_runs_ends_it"],
    "another producer has": ["letters::letters_after_the_open_transaction_of_another_producer_are_not_stored_again"],
    "the table of a mirror": ["unlucky_moments::a_mirror_whose_table_is_deleted_ends"],
    "a topic and its mirror's table": ["unlucky_moments::a_topic_that_is_gone_with_its_table_is_told_at_the_next_start"],
    "retention of the journal": ["losses::retention_that_overtakes_a_mirror_is_reported"],
    "retention of the topic": ["capture::retention_that_overtakes_a_running_capture_is_told"],
    "the journal lost its newest": ["losses::a_journal_that_was_set_back_stops_the_mirror",
                                    "losses::an_older_copy_of_the_journal_stops_the_mirror"],
    "a captured journal is restored": ["unlucky_moments::a_restored_backup_of_a_capture_goes_on_where_it_was"],
    "a captured journal reaches": ["topology::a_full_journal_holds_a_capture_back"],
    "the positions of a capture": ["unlucky_moments::positions_without_room_end_a_capture_before_it_appends"],
    "the disk is full": ["losses::a_capture_onto_a_full_disk_goes_on_when_there_is_space"],
    "the brokers lost": ["unlucky_moments::a_tail_that_an_unclean_election_has_lost_ends_a_capture",
                         "unlucky_moments::a_tail_that_an_unclean_election_has_lost_ends_a_standby"],
    "records with old times": ["command::a_dry_run_warns_of_what_the_topic_would_remove_at_once"],
    "the topic has `message.timestamp.type": ["topology::times_of_a_log_append_time_topic_are_not_compared",
                                              "unlucky_moments::a_dry_run_warns_of_a_topic_with_times_of_its_own"],
    "a journal is mirrored to a topic and captures": ["takeover::a_mirror_and_a_capture_do_not_go_in_a_circle"],
    "the host of a mirrored": ["standby_hosts::the_standby_of_a_dead_host_takes_over"],
    "a mirror starts after": ["standby::a_standby_takes_over"],
    "a standby is promoted": ["standby::a_takeover_while_the_standby_runs_fences_nothing",
                              "standby::of_two_standbys_one_takes_over"],
    "the number of partitions grows": ["topology::keys_change_their_partition_at_one_record",
                                       "topology::an_added_partition_is_captured_while_it_runs",
                                       "standby::records_in_an_added_partition_are_not_a_gap"],
    "a partition has no leader": ["leaderless::a_capture_reads_the_other_partitions_and_says_so",
                                  "leaderless::a_mirror_says_which_partition_takes_no_record"],
    "a name server does not answer": ["silent_names::a_signal_ends_it_at_once_while_a_name_server_is_silent"],
    "nothing is mirrored for longer": [
        "broker_faults::a_transactional_id_that_the_brokers_have_forgotten_is_told_and_costs_nothing"],
    "a password expires": ["secured::a_password_that_has_expired_ends_the_flows_and_the_new_one_goes_on"],
    "the brokers get new certificates": ["secured::a_broker_with_a_new_certificate_is_the_same_broker",
                                         "secured::a_certificate_of_an_authority_that_is_not_trusted_yet_is_waited_for"],
    "the time of a message does not fit": ["refusals::a_time_that_no_journal_has_room_for_is_refused_with_its_place",
                                           "transform::a_result_that_is_not_a_record_is_refused"],
}  # fmt: skip


def rows() -> list[str]:
    text = (ROOT / "docs" / "kafka-failures.md").read_text(encoding="utf-8")
    table = text.partition("## What happens when")[2].partition("\n## ")[0].partition("\n### ")[0]
    found = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    return found[1:]  # without the head


def test_the_table_has_rows():
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows())
def test_a_test_shows_what_happens_when(row):
    shown = [beginning for beginning in SHOWN_BY if row.startswith(beginning)]
    assert shown, f"write a test of {row!r} in tests/kafka, and name it in SHOWN_BY of {Path(__file__).name}"


@pytest.mark.parametrize("beginning", SHOWN_BY)
def test_the_tests_that_are_named_exist(beginning):
    assert any(row.startswith(beginning) for row in rows()), (
        f"kafka-failures.md has no row {beginning!r} any more: change SHOWN_BY"
    )
    for name in SHOWN_BY[beginning]:
        file, _, function = name.partition("::")
        tree = ast.parse((KAFKA / f"test_{file}.py").read_text(encoding="utf-8"))
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert f"test_{function}" in there, f"tests/kafka/test_{file}.py has no test_{function}: change SHOWN_BY"
