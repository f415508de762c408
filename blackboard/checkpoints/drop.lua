-- Drop a slice of old checkpoints; the newest and the pinned ones stay.
-- KEYS: meta, latest, history, pins, checkpoint-and-writes...
-- ARGV: incarnation, id...
-- Returns: {"OK", dropped id...} | {"MOVED"}
--
-- Each id has two keys, its checkpoint and its writes, in the order of the ids.

local m = read_meta(KEYS[1], now_us())
if not m.incarnation or m.expired or m.incarnation ~= ARGV[1] then return {'MOVED'} end
local latest = redis.call('GET', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('SCARD', KEYS[4])

local dropped = {'OK'}
local pruned = m.pruned
for i = 2, #ARGV do
  local id = ARGV[i]
  if id ~= latest and redis.call('SISMEMBER', KEYS[4], id) == 0 then
    redis.call('UNLINK', KEYS[1 + 2 * i], KEYS[2 + 2 * i])
    redis.call('ZREM', KEYS[3], id)
    dropped[#dropped + 1] = id
    pruned = id
  end
end
if #dropped > 1 then
  redis.call('HSET', KEYS[1], 'pruned', pruned)
  redis.call('HINCRBY', KEYS[1], 'uncollected', #dropped - 1)
end
return dropped
