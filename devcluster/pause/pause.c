/* The pod's first process: holds the pod's namespaces open, reaps orphans, ends on SIGTERM. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) { (void)signal_number; _exit(0); }
static void reap(int signal_number) {
	(void)signal_number;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

int main(void) {
	struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
	signal(SIGINT, leave);
	signal(SIGTERM, leave);
	sigaction(SIGCHLD, &on_child, NULL);
	for (;;)
		pause();
}
