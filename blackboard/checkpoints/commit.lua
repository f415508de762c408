-- Commit one checkpoint of a thread: everything is checked, then bodies, then `latest`, then what follows from it.
-- KEYS: meta, latest, lock, ops, history, values, parts, effects, effects_open, checkpoint, parent, writes, segment..., (artifacts), (inbox, answers)
-- ARGV: mode, op, keep_ms, fence, incarnation, parent, id, sequence, status, idle_ms, ttl_ms, part_lineage, manifest, counts...
-- Returns: {"OK", now, incarnation, fence, pushed, expires, reused} | {"DUP", now, incarnation, fence, manifest, expires}
--   | {"GONE", why} | {"REMOVING", incarnation} | {"TOOLATE"} | {"STATUS", status} | {"FENCED", fence, parent_exists, pruned}
--   | {"HELD", lock, ms} | {"CONFLICT", latest, parent_exists, pruned} | {"SEQUENCE", sequence} | {"MISSING"} | {"UNRESOLVED", key...}
--   | {"UNREAD", number} | {"SIGNALLED"}
--   | {"EFFECT", key} | {"REGRESSED", what}
--
-- reused is 1 if the id was a deleted thread's. idle_ms is `never` for a checkpoint of the root after which the thread waits for somebody: it
-- does not expire for being idle until the root's next checkpoint. counts... is:
-- number of settlements, then (effect key, prefix of its open record, settled record) each;
-- 0, or 1 where a commit takes letters, parks or ends the thread, and then: number of letters, (inbox id, signal or nothing) each;
--   what it awaits, until when in µs, and 1 to drop what is unread; the last two KEYS are the inbox and the answers then;
-- number of artifacts, then (digest, `moved` or `mentioned`, or nothing for one that should be referred to) each; the key of that
--   name is there if there are any;
-- number of values, then (digest, body) each, an empty body for one that should be stored;
-- number of logs, then (counted, frame if pushed, frame if fresh, part, number of items, item...) each; counted is the length that
--   the tail must have, or -1 for a log that always starts a segment; its tail and fresh segment are the next two KEYS;
-- number of references, then the least length of each; their segments are the next KEYS.

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
local first = parent == '' and part_lineage == ''
-- An id of the thread's own sequence is given out once, so its manifest says which op it was; an id of the caller's may be put
-- again, so its op ids are kept apart.
local mark = op .. ':' .. id
local known = not native and redis.call('ZSCORE', history_k, id)
local marked = not native and redis.call('ZSCORE', ops_k, mark)

local settlements = {}
for i = 1, tonumber(take()) do
  settlements[i] = {take(), take(), take()}
end
local letters, awaits, wake, drop = {}, '', '', ''
local inbox_k, answers_k, artifacts_k = KEYS[#KEYS - 1], KEYS[#KEYS], KEYS[#KEYS]
if take() == '1' then
  artifacts_k = KEYS[#KEYS - 2]
  for i = 1, tonumber(take()) do
    letters[i] = {take(), take()}
  end
  awaits, wake, drop = take(), take(), take()
end
local artifacts = {}
for i = 1, tonumber(take()) do
  artifacts[i] = {take(), take()}
end
local asked = string.match(awaits, '^signal:(.*)$')

-- What follows from a checkpoint that `latest` has reached: a repetition can set it again. Returns the expiry.
local function follow(stands)
  if not known then redis.call('ZADD', history_k, '0', id) end
  for _, s in ipairs(settlements) do redis.call('HDEL', open_k, s[1]) end
  local fields = {'updated', now, 'takeovers', '0', 'sequence', native and sequence or m.sequence}
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if m.status ~= status then set('status', status) end
  if awaits ~= '' then set('awaits', awaits) end
  if wake ~= '' then set('wake', wake) end
  if first then set('opener', op) end
  if stands ~= m.fence then set('fence', stands) end
  local life, expires = ttl_ms, ''
  -- A checkpoint of the root says that nobody is waited for any more, unless it is the one whose writes said so and came first.
  local waits = idle_ms == 'never'
  local goes_on = m.interrupted and part_lineage == '' and m.interrupted ~= id and not waits
  if waits then
    set('interrupted', id)
  elseif life == '' and status == 'running' and (goes_on or not m.interrupted) then
    life = idle_ms
  end
  if life ~= '' then
    expires = whole(math.floor(tonumber(now) / 1000) + tonumber(life))
    set('expires', expires)
  end
  redis.call('HSET', meta_k, unpack(fields))
  if goes_on then redis.call('HDEL', meta_k, 'interrupted') end
  if expires == '' and m.expires then redis.call('HDEL', meta_k, 'expires') end
  if (fence == '' or status ~= 'running') and m.holder then redis.call('HDEL', meta_k, 'holder') end
  if m.status == 'parked' and status ~= 'parked' then redis.call('HDEL', meta_k, 'awaits', 'wake') end
  for _, letter in ipairs(letters) do
    redis.call('XDEL', inbox_k, letter[1])
    if letter[2] ~= '' then redis.call('HSET', answers_k, 'n:' .. letter[2], 'taken') end
  end
  if status ~= 'running' then
    -- Nobody holds a thread that waits or is closed; a name that was answered before is open for the next answer.
    redis.call('DEL', lock_k)
    if asked then redis.call('HDEL', answers_k, 'n:' .. asked) end
  end
  if native then return expires end
  -- Op ids stay at least keep_ms; swept, and their expiry moved, only when half of what it was set to has passed.
  redis.call('ZADD', ops_k, now, mark)
  if redis.call('PTTL', ops_k) < keep_ms then
    redis.call('ZREMRANGEBYSCORE', ops_k, '-inf', '(' .. whole(tonumber(now) - keep_ms * 1000))
    redis.call('PEXPIRE', ops_k, 2 * keep_ms)
  end
  return expires
end

local ours = m.incarnation and not m.expired and (incarnation == '' or incarnation == m.incarnation)
if ours and (native and latest and latest ~= parent or latest == id or known) then
  local stored = redis.call('GET', checkpoint_k)
  -- Where scripts are not atomic in a crash, `latest` may stand without what follows from it: then it is made up for.
  local same = stored and string.find(stored, '"op":"' .. op .. '"', 1, true)
  if same and latest == id and not marked and not closed(m) then
    return {'DUP', now, m.incarnation, m.fence, stored, follow(m.fence)}
  end
  if marked or same and native then return {'DUP', now, m.incarnation, m.fence, stored, m.expires or ''} end
end
if m.status == 'deleted' and redis.call('HGET', meta_k, 'opener') == op then return {'GONE', 'deleted'} end
local refused = judge_life(m, latest, incarnation, first)
if refused then return refused end
if tonumber(string.sub(op, 1, #now)) < tonumber(now) - keep_ms * 1000 then return {'TOOLATE'} end
if closed(m) then return {'STATUS', m.status} end
local function parent_exists()
  return parent == '' and 1 or redis.call('EXISTS', parent_k)
end
local stands
refused, stands = judge_fence(m, fence, lock_k, now)
if refused then
  if refused[1] == 'FENCED' then return {'FENCED', m.fence, parent_exists(), m.pruned} end
  return refused
end
if m.incarnation and not latest and redis.call('ZCARD', history_k) > 0 then return {'REGRESSED', 'latest'} end
if native then
  if (latest or '') ~= parent then return {'CONFLICT', latest or '', parent_exists(), m.pruned} end
  if tonumber(sequence) ~= tonumber(m.sequence) + 1 then return {'SEQUENCE', m.sequence} end
end

-- What the manifest refers to must be there, and every key of the type it should have.
if native then redis.call('ZCARD', history_k) end
local bodies, logs = {}, {}
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
if #artifacts > 0 then redis.call('HLEN', artifacts_k) end
for _, a in ipairs(artifacts) do
  if a[2] == '' and redis.call('HEXISTS', artifacts_k, a[1]) == 0 then return {'MISSING'} end
end
local parted = part_lineage ~= ''
for _ = 1, tonumber(take()) do
  local counted, pushed, fresh, part, items = tonumber(take()), take(), take(), take(), tonumber(take())
  local length = counted >= 0 and redis.call('LLEN', KEYS[key_at])
  if length and length < counted then return {'MISSING'} end
  if length == counted then
    logs[#logs + 1] = {key = KEYS[key_at], frame = pushed, flag = '1', first = at, last = at + items - 1}
  else
    local key = KEYS[key_at + 1]
    logs[#logs + 1] = {key = key, frame = fresh, flag = '0', first = at, last = at + items - 1,
                       part = part, debris = redis.call('LLEN', key) > 0}
    parted = true
  end
  at = at + items
  key_at = key_at + 2
end
for _ = 1, tonumber(take()) do
  if redis.call('LLEN', KEYS[key_at]) < tonumber(take()) then return {'MISSING'} end
  key_at = key_at + 1
end
if parted then redis.call('SCARD', parts_k) end
local settled = {}
for _, s in ipairs(settlements) do
  local open = redis.call('HGET', open_k, s[1])
  if not open or string.sub(open, 1, #s[2]) ~= s[2] then return {'EFFECT', s[1]} end
  settled[s[1]] = true
end
if #settlements > 0 then redis.call('HLEN', effects_k) end
if (status == 'finished' or status == 'failed') and redis.call('HLEN', open_k) > #settlements then
  local unresolved = {'UNRESOLVED'}
  for _, key in ipairs(redis.call('HKEYS', open_k)) do
    if not settled[key] and #unresolved <= 100 then unresolved[#unresolved + 1] = key end
  end
  return unresolved
end

local ends = status == 'finished' or status == 'failed'
if #letters > 0 or ends or awaits ~= '' then
  redis.call('HLEN', answers_k)
  local unread = redis.call('XLEN', inbox_k) - #letters
  if ends and drop ~= '1' and unread > 0 then return {'UNREAD', unread} end
  local answer = asked and redis.call('HGET', answers_k, 'n:' .. asked)
  if answer and answer ~= 'taken' then return {'SIGNALLED'} end
end

-- Bodies; a thread is opened before its first checkpoint is reached.
local reused = m.status == 'deleted' and 1 or 0
if not m.incarnation then
  if stands == '0' then stands = now end
  m.incarnation, m.status, m.fence = now, 'running', stands
  redis.call('HSET', meta_k, 'incarnation', now, 'created', now, 'status', 'running', 'fence', stands)
  redis.call('PERSIST', meta_k)
  redis.call('PERSIST', parts_k)
end
if not (native or known) or latest == false then redis.call('PERSIST', writes_k) end
local text = {'bb1', #now, ':', now, manifest}
local flags = ''
for i = 1, #bodies, 1000 do
  redis.call('HSET', values_k, unpack(bodies, i, math.min(i + 999, #bodies)))
end
for _, a in ipairs(artifacts) do
  if a[2] == 'mentioned' then
    redis.call('HSET', artifacts_k, a[1], a[2])
  elseif a[2] ~= '' then
    redis.call('HSETNX', artifacts_k, a[1], a[2])
  end
end
for _, log in ipairs(logs) do
  if log.debris then redis.call('DEL', log.key) end
  push(log.key, log.first, log.last)
  if log.part then redis.call('SADD', parts_k, log.part) end
  text[#text + 1] = log.frame
  flags = flags .. log.flag
end
if part_lineage ~= '' then redis.call('SADD', parts_k, part_lineage) end
redis.call('SET', checkpoint_k, table.concat(text))
for _, s in ipairs(settlements) do redis.call('HSET', effects_k, s[1], s[3]) end

-- The commit point.
if native or not latest or before(latest, id) then redis.call('SET', latest_k, id) end

return {'OK', now, m.incarnation, stands, flags, follow(stands), reused}
