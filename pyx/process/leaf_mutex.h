/* A mutex for the module that includes this file. It is a leaf: its holder never waits for anything. */
#pragma once

#include <pthread.h>

static pthread_mutex_t jlog_leaf_mutex = PTHREAD_MUTEX_INITIALIZER;

static void jlog_leaf_lock(void) { pthread_mutex_lock(&jlog_leaf_mutex); }
static void jlog_leaf_unlock(void) { pthread_mutex_unlock(&jlog_leaf_mutex); }

/* Prepares the mutex for forks. It is held across a fork, so that a child does not find it taken by a thread that the child
 * does not have. Returns 0 or an errno. */
static int jlog_leaf_start(void)
{
    return pthread_atfork(jlog_leaf_lock, jlog_leaf_unlock, jlog_leaf_unlock);
}
