-- Remove values and segments that no checkpoint refers to, unless the thread moved since that was found out.
-- KEYS: meta, values, parts, segment...
-- ARGV: incarnation, updated, number of digests, digest..., part...
-- Returns: {"OK"} | {"MOVED"}

local f = redis.call('HMGET', KEYS[1], 'incarnation', 'updated')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {'MOVED'} end
redis.call('HLEN', KEYS[2])
redis.call('SCARD', KEYS[3])

local digests = tonumber(ARGV[3])
for i = 4, 3 + digests, 1000 do redis.call('HDEL', KEYS[2], unpack(ARGV, i, math.min(i + 999, 3 + digests))) end
for i = 4 + digests, #ARGV, 1000 do redis.call('SREM', KEYS[3], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
for i = 4, #KEYS, 1000 do redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, #KEYS))) end
return {'OK'}
