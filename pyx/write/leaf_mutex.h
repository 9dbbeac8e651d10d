/* A mutex of the module that includes this. A leaf: nothing blocks under it. */
#ifndef JLOG_LEAF_MUTEX_H
#define JLOG_LEAF_MUTEX_H

#include <pthread.h>

static pthread_mutex_t jlog_leaf_mutex = PTHREAD_MUTEX_INITIALIZER;

static void jlog_leaf_lock(void) { pthread_mutex_lock(&jlog_leaf_mutex); }
static void jlog_leaf_unlock(void) { pthread_mutex_unlock(&jlog_leaf_mutex); }

/* It is held across a fork: a child must not find it taken by a thread that it does not have. Returns errno. */
static int jlog_leaf_start(void)
{
    return pthread_atfork(jlog_leaf_lock, jlog_leaf_unlock, jlog_leaf_unlock);
}

#endif
