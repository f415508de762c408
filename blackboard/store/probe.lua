-- Try what the other scripts rely on: two keys at once, a conditional set with a life, a hash, the clock.
-- KEYS: lock, hash
-- ARGV: token, life_ms
-- Returns: {first_set, second_set, pttl, token_from_hash, absent_field, seconds, microseconds}
--
-- Both keys end by themselves.

local first = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local second = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local life = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[2], 'token', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
local fields = redis.call('HMGET', KEYS[2], 'token', 'absent')
local now = redis.call('TIME')
return {first and 1 or 0, second and 1 or 0, life, fields[1], fields[2], now[1], now[2]}
