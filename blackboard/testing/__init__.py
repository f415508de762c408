"""What the library's own tests stand on, for the tests of those who build on it.

Servers (`servers`, `cluster`, `sentinel`, `tls`) start real ones; `proxy` breaks the wire between client and server at an
exact command. Nothing here imitates a server.
"""
