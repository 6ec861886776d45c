"""A Python that forks: it has a call run by a fork of ``forking_python.py``'s server, and stands for it.

It passes on its streams, its variables and the signals that it gets, and ends as the fork does; a fork whose stand-in
is killed is killed as well. What the server cannot do runs in a Python of its own. ``forking_python.py`` writes this
file as an executable, which starts in 20 ms.
"""

import marshal
import os
import signal
import socket
import sys

FORWARDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def is_forkable(words):
    """Return whether a fork does the same: no options of the interpreter, and threads as in the server."""
    if os.environ.get('OMP_NUM_THREADS') != '1' or not words:
        return False
    if words[0] == '-c':  # multiprocessing's own helpers inherit files
        return not set(map(int, os.listdir('/proc/self/fd'))) - {0, 1, 2, 3}
    return words[0] == '-m' or not words[0].startswith('-')


def main():
    words = [word for number, word in enumerate(sys.argv[1:]) if number or word != '-u']
    if not is_forkable(words):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    server = socket.socket(socket.AF_UNIX)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    unbuffered = '-u' in sys.argv[1:2] or bool(os.environ.get('PYTHONUNBUFFERED'))
    call = marshal.dumps((words, unbuffered, os.path.abspath(__file__), os.getcwd(), dict(os.environ)))
    try:
        server.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'socket'))
        socket.send_fds(server, [len(call).to_bytes(8, 'little')], [0, 1, 2])
        server.sendall(call)
        fork = int.from_bytes(server.recv(8), 'little')
    except OSError:
        fork = 0
    if not fork:  # there is no server any more
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(fork, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    for stream in range(3):  # only the fork holds them, so that its end is seen by who reads them
        os.close(stream)
    status = int.from_bytes(server.recv(8), 'little', signed=True)
    if status < 0:
        if -status in FORWARDED:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == '__main__':
    main()
