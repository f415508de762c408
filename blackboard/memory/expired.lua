-- List records whose time is over and which nobody has cleared away yet.
-- KEYS: expiring
-- ARGV: limit
-- Returns: ids
-- luacheck: read globals guard
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', guard.text(math.floor(guard.now() / 1000) - 1), 'LIMIT', 0, ARGV[1])
