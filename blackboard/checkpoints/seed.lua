-- Write a slice of a thread that is being copied or imported to a new id; nobody sees it before it is opened.
-- KEYS: meta, latest, parts, target
-- ARGV: copy, kind, part, offset, item...
-- Returns: {"OK"} | {"EXISTS", status} | {"REMOVING", incarnation} | {"MOVED"}
--
-- copy names the copying; the first slice reserves the id for it. kind says what target is: "string", "list", "hash", "set", or
-- "history" (a sorted set with equal scores), or "letters" (a stream; id, kind, name and value of each). part is what goes into the thread's parts, or empty. offset is how long a list
-- must be before this slice, so that a slice that is sent twice stands once.

local copy, kind, part, offset = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = now_us()
local m = read_meta(KEYS[1], now)
local owner = redis.call('HGET', KEYS[1], 'copying')
if m.expired then return {'REMOVING', m.incarnation} end
if m.removing then return {'REMOVING', m.removing} end
if m.incarnation or redis.call('EXISTS', KEYS[2]) == 1 and owner ~= copy then return {'EXISTS', m.status or 'lost'} end
if owner and owner ~= copy then return {'MOVED'} end
if not owner then
  if m.holder then return {'EXISTS', 'held'} end
  redis.call('HSET', KEYS[1], 'status', 'new', 'copying', copy, 'fence', whole(math.max(tonumber(m.fence) + 1, tonumber(now))))
  redis.call('PERSIST', KEYS[1])
  redis.call('PERSIST', KEYS[3])
end
if part ~= '' then redis.call('SADD', KEYS[3], part) end
if kind == 'string' then
  redis.call('SET', KEYS[4], ARGV[5])
elseif kind == 'history' then
  for i = 5, #ARGV do redis.call('ZADD', KEYS[4], '0', ARGV[i]) end
elseif kind == 'letters' then
  for i = 5, #ARGV, 4 do
    if #redis.call('XRANGE', KEYS[4], ARGV[i], ARGV[i]) == 0 then
      redis.call('XADD', KEYS[4], ARGV[i], 'kind', ARGV[i + 1], 'name', ARGV[i + 2], 'value', ARGV[i + 3])
    end
  end
elseif kind ~= 'list' or redis.call('LLEN', KEYS[4]) == offset then
  local command = ({list = 'RPUSH', hash = 'HSET', set = 'SADD'})[kind]
  for i = 5, #ARGV, 1000 do redis.call(command, KEYS[4], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
end
return {'OK'}
