-- Keep a checkpoint whatever is pruned.
-- KEYS: meta, history, pins
-- ARGV: id
-- Returns: {"OK"} | {"ABSENT"}

local m = read_meta(KEYS[1], now_us())
if not m.incarnation or m.expired or not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'ABSENT'} end
redis.call('SADD', KEYS[3], ARGV[1])
-- The keys of a closed thread have their expiry already; a new one must not outlive them.
if closed(m) and m.expires then redis.call('PEXPIREAT', KEYS[3], m.expires) end
return {'OK'}
