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
local pinned = redis.call('SCARD', KEYS[4]) > 0
local dropped, victims = {'OK'}, {}
for i = 2, #ARGV do
  local id = ARGV[i]
  if id ~= latest and not (pinned and redis.call('SISMEMBER', KEYS[4], id) == 1) then
    dropped[#dropped + 1] = id
    victims[#victims + 1] = KEYS[1 + 2 * i]
    victims[#victims + 1] = KEYS[2 + 2 * i]
  end
end
if #dropped == 1 then return dropped end
-- The history goes last: a script that is cut off leaves nothing that is not found from it.
for i = 1, #victims, 1000 do redis.call('UNLINK', unpack(victims, i, math.min(i + 999, #victims))) end
for i = 2, #dropped, 1000 do redis.call('ZREM', KEYS[3], unpack(dropped, i, math.min(i + 999, #dropped))) end
redis.call('HSET', KEYS[1], 'pruned', dropped[#dropped])
redis.call('HINCRBY', KEYS[1], 'uncollected', #dropped - 1)
return dropped
