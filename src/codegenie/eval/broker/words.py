"""The messages between the harness and the process of a broker, one JSON object on a line each.

| from    | message                                        | answer                                     |
|---------|------------------------------------------------|--------------------------------------------|
| broker  | `ready`                                        | none: it is hidden now and can take a key  |
| harness | `serve` with rules, and a pipe with the key    | `ready`, or `error`                        |
| harness | `listen` with a number, and a listening socket | `ready`, or `error`                        |
| harness | `tell` with the number of a line               | `ledger` so far                            |
| harness | `close` with the number of a line              | `ledger` of the whole line                 |
| broker  | `waited` of a `line`, with `waiting` and `now` | none: a wait for the provider began, ended |

At most one request of the harness is under way. The broker ends when the harness closes the socket. The key
travels in the pipe alone, and only after the broker has said that no other process can look into it.
"""

READY, SERVE, LISTEN, TELL, CLOSE = "ready", "serve", "listen", "tell", "close"
LEDGER, ERROR = "ledger", "error"
WAITED, WAITING, NOW, LINE, CA_FILE = "waited", "waiting", "now", "line", "ca_file"
