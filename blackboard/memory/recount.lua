-- Count the records of a path anew.
-- KEYS: head, order
-- ARGV: none
-- Returns: the number
local count = redis.call('ZCARD', KEYS[2])
redis.call('HSET', KEYS[1], 'count', count)
return count
