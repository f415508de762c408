-- Give a slice of a closed thread's keys the expiry that stands in its meta.
-- KEYS: meta, victim...
-- ARGV: incarnation, expires
-- Returns: {"OK"} | {"MOVED"}

local f = redis.call('HMGET', KEYS[1], 'incarnation', 'expires')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {'MOVED'} end
for i = 2, #KEYS do redis.call('PEXPIREAT', KEYS[i], ARGV[2]) end
return {'OK'}
