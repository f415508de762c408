-- Count the records of a path whose time is not over.
-- KEYS: head, expiring
-- ARGV: none
-- Returns: the number
--
-- A key is there until the server's clock has passed the ms of its expiry, so a record is counted so long.
-- luacheck: read globals guard
local count = tonumber(redis.call('HGET', KEYS[1], 'count') or '0')
return count - redis.call('ZCOUNT', KEYS[2], '-inf', guard.text(math.floor(guard.now() / 1000) - 1))
