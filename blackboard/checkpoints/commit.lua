-- Commit one checkpoint of a thread: everything is checked, then bodies, then `latest`, then what follows from it.
-- KEYS: meta, latest, lock, ops, history, values, parts, effects, effects_open, checkpoint, parent, writes, segment...
-- ARGV: mode, op, keep_ms, fence, incarnation, parent, id, sequence, status, idle_ms, ttl_ms, part_lineage, manifest, counts...
-- Returns: {"OK", now, incarnation, fence, pushed, expires} | {"DUP", now, incarnation, fence, manifest, expires}
--   | {"GONE", why} | {"REMOVING", incarnation} | {"TOOLATE"} | {"STATUS", status} | {"FENCED", fence, parent_exists, pruned}
--   | {"HELD", lock, ms} | {"CONFLICT", latest, parent_exists, pruned} | {"SEQUENCE", sequence} | {"MISSING"} | {"UNRESOLVED", key...}
--   | {"EFFECT", key} | {"REGRESSED", what}
--
-- counts... is: number of values, then (digest, body) each, an empty body for one that should be stored;
-- number of logs, then (counted, frame if pushed, frame if fresh, part, number of items, item...) each; counted is the length that
--   the tail must have, or -1 for a log that always starts a segment; its tail and fresh segment are the next two KEYS;
-- number of references, then the least length of each; their segments are the next KEYS;
-- number of settlements, then (effect key, prefix of its open record, settled record) each.

local meta_k, latest_k, lock_k, ops_k, history_k, values_k = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local parts_k, effects_k, open_k, checkpoint_k, parent_k, writes_k = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local native, op, keep_ms, fence, incarnation = ARGV[1] == 'native', ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local parent, id, sequence, status, idle_ms, ttl_ms = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local part_lineage, manifest = ARGV[12], ARGV[13]
local at, key_at = 14, 13

local function take()
  at = at + 1
  return ARGV[at - 1]
end

-- Ids order as the sorted set orders them: byte by byte, whatever the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function push(key, first, last)
  for i = first, last, 1000 do
    redis.call('RPUSH', key, unpack(ARGV, i, math.min(i + 999, last)))
  end
end

local now = now_us()
local m = read_meta(meta_k, now)
local latest = redis.call('GET', latest_k)

local mark = op .. ':' .. id
local marked = redis.call('ZSCORE', ops_k, mark)
if marked and m.incarnation and not m.expired and (incarnation == '' or incarnation == m.incarnation)
    and (latest == id or redis.call('ZSCORE', history_k, id)) then
  return {'DUP', now, m.incarnation, m.fence, redis.call('GET', checkpoint_k), m.expires or ''}
end
local refused = judge_life(m, latest, incarnation, parent == '' and part_lineage == '')
if refused then return refused end
local op_us = tonumber(string.match(op, '^%d+'))
if op_us < tonumber(now) - keep_ms * 1000 then return {'TOOLATE'} end
if m.status == 'finished' or m.status == 'failed' or m.status == 'quarantined' then return {'STATUS', m.status} end
local function parent_exists()
  return parent == '' and 1 or redis.call('EXISTS', parent_k)
end
local stands
refused, stands = judge_fence(m, fence, lock_k, now)
if refused then
  if refused[1] == 'FENCED' then return {'FENCED', m.fence, parent_exists(), m.pruned} end
  return refused
end
if native then
  if (latest or '') ~= parent then return {'CONFLICT', latest or '', parent_exists(), m.pruned} end
  if tonumber(sequence) ~= tonumber(m.sequence) + 1 then return {'SEQUENCE', m.sequence} end
end

-- What the manifest refers to must be there, and every key of the type it should have.
local bodies, logs, settlements = {}, {}, {}
local known = redis.call('ZSCORE', history_k, id)
for _ = 1, tonumber(take()) do
  local digest, body = take(), take()
  if body ~= '' then
    bodies[#bodies + 1] = digest
    bodies[#bodies + 1] = body
  elseif redis.call('HEXISTS', values_k, digest) == 0 then
    return {'MISSING'}
  end
end
if #bodies > 0 then redis.call('HLEN', values_k) end
local parted = part_lineage ~= ''
for _ = 1, tonumber(take()) do
  local counted, pushed, fresh, part, items = tonumber(take()), take(), take(), take(), tonumber(take())
  local log = {first = at, last = at + items - 1}
  at = at + items
  if counted >= 0 then
    local length = redis.call('LLEN', KEYS[key_at])
    if length < counted then return {'MISSING'} end
    log.pushed = length == counted
  end
  if log.pushed then
    log.key, log.frame = KEYS[key_at], pushed
  else
    log.key, log.frame, log.part, parted = KEYS[key_at + 1], fresh, part, true
    if redis.call('LLEN', log.key) > 0 then log.debris = true end
  end
  key_at = key_at + 2
  logs[#logs + 1] = log
end
for _ = 1, tonumber(take()) do
  if redis.call('LLEN', KEYS[key_at]) < tonumber(take()) then return {'MISSING'} end
  key_at = key_at + 1
end
if parted then redis.call('SCARD', parts_k) end
local settled = tonumber(take())
for _ = 1, settled do
  local key, expect, record = take(), take(), take()
  local open = redis.call('HGET', open_k, key)
  if not open or string.sub(open, 1, #expect) ~= expect then return {'EFFECT', key} end
  settlements[#settlements + 1] = {key, record}
end
if settled > 0 then redis.call('HLEN', effects_k) end
if (status == 'finished' or status == 'failed') and redis.call('HLEN', open_k) > settled then
  return {'UNRESOLVED', unpack(redis.call('HKEYS', open_k), 1, 100)}
end

-- Bodies.
local inc = m.incarnation or now
local text = {'bb1', #now, ':', now, manifest}
local flags = ''
for i = 1, #bodies, 1000 do
  redis.call('HSET', values_k, unpack(bodies, i, math.min(i + 999, #bodies)))
end
for _, log in ipairs(logs) do
  if log.debris then redis.call('DEL', log.key) end
  push(log.key, log.first, log.last)
  if log.part then redis.call('SADD', parts_k, log.part) end
  text[#text + 1] = log.frame
  flags = flags .. (log.pushed and '1' or '0')
end
if part_lineage ~= '' then redis.call('SADD', parts_k, part_lineage) end
redis.call('SET', checkpoint_k, table.concat(text))
for _, s in ipairs(settlements) do redis.call('HSET', effects_k, s[1], s[2]) end

-- The commit point.
if native or not latest or before(latest, id) then redis.call('SET', latest_k, id) end

-- What a repetition can set again from the manifest.
if not known then redis.call('ZADD', history_k, 0, id) end
for _, s in ipairs(settlements) do redis.call('HDEL', open_k, s[1]) end
local fields = {'updated', now, 'takeovers', '0'}
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if m.status ~= status then set('status', status) end
if native then set('sequence', sequence) end
if not m.incarnation then
  set('incarnation', inc)
  set('created', now)
end
if stands ~= m.fence or not m.status then set('fence', stands == '0' and now or stands) end
local expires = ''
if ttl_ms ~= '' then
  expires = whole(math.floor(tonumber(now) / 1000) + tonumber(ttl_ms))
elseif idle_ms ~= '' and status == 'running' then
  expires = whole(math.floor(tonumber(now) / 1000) + tonumber(idle_ms))
end
if expires ~= '' then set('expires', expires) end
redis.call('HSET', meta_k, unpack(fields))
if expires == '' and m.expires then redis.call('HDEL', meta_k, 'expires') end
if not m.incarnation then
  redis.call('PERSIST', meta_k)
  redis.call('PERSIST', writes_k)
  redis.call('PERSIST', parts_k)
end
if fence == '' and m.holder then redis.call('HDEL', meta_k, 'holder') end
-- Op ids stay at least keep_ms; swept, and their expiry moved, only when half of what it was set to has passed.
redis.call('ZADD', ops_k, now, mark)
if redis.call('PTTL', ops_k) < keep_ms then
  redis.call('ZREMRANGEBYSCORE', ops_k, '-inf', '(' .. whole(tonumber(now) - keep_ms * 1000))
  redis.call('PEXPIRE', ops_k, 2 * keep_ms)
end
return {'OK', now, inc, stands == '0' and now or stands, flags, expires}
