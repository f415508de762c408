-- Keep values in one namespace of a cache, each until its own end, and list them for a clear; a life of 0 removes one.
-- KEYS: entries, entry...
-- ARGV: name, life_ms, value...
-- Returns: {"OK"}

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
for i = 2, #KEYS do
  local at = 3 * (i - 2)
  local life = tonumber(ARGV[at + 2])
  if life > 0 then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + life), ARGV[at + 1])
    redis.call('SET', KEYS[i], ARGV[at + 3], 'PX', string.format('%.0f', life))
  else
    redis.call('DEL', KEYS[i])
    redis.call('ZREM', KEYS[1], ARGV[at + 1])
  end
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then
  -- A second longer, so that no entry outlives its row.
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', tonumber(last[2]) + 1000))
end
return {'OK'}
