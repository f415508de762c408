-- Takes forgotten records out of the chunks: those that hold them go, rewritten ones stand in their place, and whoever builds
-- a snapshot from rows that were read before is refused.
-- KEYS: head, index, chunks, fresh..., victim...
-- ARGV: scrubs, before (the pointer that was read; empty: none), pointer (empty: none), seen (chunks in the set), count (of fresh), name (of fresh and victim)..., body (of fresh)...
-- Returns: {"OK"} | {"MOVED"}
local scrubs, before, pointer, seen = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local count, victims = tonumber(ARGV[5]), #KEYS - 3 - tonumber(ARGV[5])

if (redis.call('HGET', KEYS[1], 'scrubs') or '0') ~= scrubs or (redis.call('GET', KEYS[2]) or '') ~= before
  or redis.call('SCARD', KEYS[3]) ~= seen then
  return {'MOVED'}
end
for i = 1, count do
  redis.call('SADD', KEYS[3], ARGV[5 + i])
  redis.call('SET', KEYS[3 + i], ARGV[5 + count + victims + i])
end
redis.call('HINCRBY', KEYS[1], 'scrubs', 1)
if pointer == '' then
  redis.call('DEL', KEYS[2])
elseif pointer ~= before then
  redis.call('SET', KEYS[2], pointer)
end
for i = 1, victims do
  redis.call('UNLINK', KEYS[3 + count + i])
  redis.call('SREM', KEYS[3], ARGV[5 + count + i])
end
return {'OK'}
