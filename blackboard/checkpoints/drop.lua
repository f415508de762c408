-- Drop a slice of old checkpoints; the newest and the pinned ones stay.
-- KEYS: meta, latest, history, pins, checkpoint-and-writes...
-- ARGV: incarnation, any, id...
-- Returns: {"OK", dropped id...} | {"MOVED"}
--
-- Each id has two keys, its checkpoint and its writes, in the order of the ids. If any is 1 the newest may go as well: the newest
-- of those that stand takes its place.

local m = read_meta(KEYS[1], now_us())
if not m.incarnation or m.expired or m.incarnation ~= ARGV[1] then return {'MOVED'} end
local latest = redis.call('GET', KEYS[2])
redis.call('ZCARD', KEYS[3])
local pinned = redis.call('SCARD', KEYS[4]) > 0
local dropped, victims = {'OK'}, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  if (id ~= latest or ARGV[2] == '1') and not (pinned and redis.call('SISMEMBER', KEYS[4], id) == 1) then
    dropped[#dropped + 1] = id
    victims[#victims + 1] = KEYS[2 * i - 1]
    victims[#victims + 1] = KEYS[2 * i]
  end
end
if #dropped == 1 then return dropped end
local going = {}
for i = 2, #dropped do going[dropped[i]] = true end
if going[latest] then
  local start = 0
  local newest
  repeat
    newest = redis.call('ZREVRANGEBYLEX', KEYS[3], '+', '-', 'LIMIT', start, 1)[1]
    start = start + 1
  until not newest or not going[newest]
  if newest then redis.call('SET', KEYS[2], newest) else redis.call('DEL', KEYS[2]) end
end
-- The history goes last: a script that is cut off leaves nothing that is not found from it.
for i = 1, #victims, 1000 do redis.call('UNLINK', unpack(victims, i, math.min(i + 999, #victims))) end
for i = 2, #dropped, 1000 do redis.call('ZREM', KEYS[3], unpack(dropped, i, math.min(i + 999, #dropped))) end
redis.call('HSET', KEYS[1], 'pruned', dropped[#dropped])
redis.call('HINCRBY', KEYS[1], 'uncollected', #dropped - 1)
return dropped
