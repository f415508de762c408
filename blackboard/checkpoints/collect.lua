-- Remove values, references to artifacts and segments that no checkpoint refers to, unless the thread moved since that was found out.
-- KEYS: meta, values, parts, artifacts, segment...
-- ARGV: incarnation, updated, number of digests, digest..., number of artifacts, artifact..., part...
-- Returns: {"OK"} | {"MOVED"}

local f = redis.call('HMGET', KEYS[1], 'incarnation', 'updated')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {'MOVED'} end
redis.call('HLEN', KEYS[2])
redis.call('SCARD', KEYS[3])

local at = 3
local function remove(command, key)
  local last = at + tonumber(ARGV[at])
  for i = at + 1, last, 1000 do redis.call(command, key, unpack(ARGV, i, math.min(i + 999, last))) end
  at = last + 1
end

remove('HDEL', KEYS[2])
remove('HDEL', KEYS[4])
for i = at, #ARGV, 1000 do redis.call('SREM', KEYS[3], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
for i = 5, #KEYS, 1000 do redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, #KEYS))) end
return {'OK'}
