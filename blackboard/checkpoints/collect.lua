-- Remove values and segments that no checkpoint refers to, unless the thread moved since that was found out.
-- KEYS: meta, values, parts, segment...
-- ARGV: incarnation, updated, number of digests, digest..., part...
-- Returns: {"OK"} | {"MOVED"}

local f = redis.call('HMGET', KEYS[1], 'incarnation', 'updated')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {'MOVED'} end
redis.call('HLEN', KEYS[2])
redis.call('SCARD', KEYS[3])

local digests = tonumber(ARGV[3])
for i = 4, 3 + digests do redis.call('HDEL', KEYS[2], ARGV[i]) end
for i = 4 + digests, #ARGV do redis.call('SREM', KEYS[3], ARGV[i]) end
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
return {'OK'}
