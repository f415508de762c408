-- Ends one grant on an administrator's word: its holder can neither write nor renew. A newer grant is left alone.
-- KEYS: meta, lock
-- ARGV: fence
-- Returns: {"OK", fence} | {"REGRESSED"}
-- luacheck: read globals guard
local stored = redis.call('HGET', KEYS[1], 'fence')
local locked = guard.split(redis.call('GET', KEYS[2]))

if not stored or tonumber(ARGV[1]) > tonumber(stored) then
  return {'REGRESSED'}
end
if stored ~= ARGV[1] then
  return {'OK', stored}
end
local fence = guard.text(math.max(tonumber(stored) + 1, guard.now()))
redis.call('HSET', KEYS[1], 'fence', fence)
redis.call('HDEL', KEYS[1], 'holder')
if locked == stored then
  redis.call('DEL', KEYS[2])
end
return {'OK', fence}
