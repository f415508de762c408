-- Remove a slice of a deleted thread, unless its id was used anew meanwhile.
-- KEYS: meta, history, parts, victim...
-- ARGV: removing, tombstone_ms or 0 unless it is the last, number of ids, id..., part...
-- Returns: {"OK"} | {"MOVED"}

if redis.call('HGET', KEYS[1], 'removing') ~= ARGV[1] then return {'MOVED'} end
local ids = tonumber(ARGV[3])

-- In few calls: each costs the server more than what it does.
local function each(command, key, list, first, last)
  for i = first, last, 1000 do
    local till = math.min(i + 999, last)
    if key then
      redis.call(command, key, unpack(list, i, till))
    else
      redis.call(command, unpack(list, i, till))
    end
  end
end

each('UNLINK', nil, KEYS, 4, #KEYS)
each('ZREM', KEYS[2], ARGV, 4, 3 + ids)
each('SREM', KEYS[3], ARGV, 4 + ids, #ARGV)
if ARGV[2] ~= '0' then
  redis.call('UNLINK', KEYS[2], KEYS[3])
  redis.call('HDEL', KEYS[1], 'removing', 'sequence', 'pruned', 'uncollected', 'created')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'OK'}
