-- Read one checkpoint of a thread with everything that it refers to, in one trip.
-- KEYS: meta, latest, history, values, effects_open
-- ARGV: id, checkpoints, logs, writes, most_items
-- Returns: {"OK", now, meta, id, manifest, values, logs, writes, open} | {"LONG", now, meta, id, manifest, values, open, writes}
--   | {"NONE", now, meta} | {"ABSENT"} | {"REGRESSED", what} | {"CORRUPT", id} | {"AT", incarnation, id}
--
-- id is '' for the newest; checkpoints, logs and writes are what stands before the ids in the keys that are followed.
-- Without checkpoints nothing is followed: the answer is AT then.

local now = now_us()
local m = read_meta(KEYS[1], now)
local latest = redis.call('GET', KEYS[2])
if latest and not m.status then return {'REGRESSED', 'meta'} end
local meta = redis.call('HGETALL', KEYS[1])
if not m.incarnation or m.expired then return {'NONE', now, meta} end
local id = ARGV[1]
if id == '' then id = latest end
if not id then
  if redis.call('ZCARD', KEYS[3]) > 0 then return {'REGRESSED', 'latest'} end
  return {'NONE', now, meta}
end
if id ~= latest and not redis.call('ZSCORE', KEYS[3], id) then return {'ABSENT'} end
if ARGV[2] == '' then return {'AT', m.incarnation, id} end
local manifest = redis.call('GET', ARGV[2] .. id)
if not manifest then
  if ARGV[1] == '' then return {'REGRESSED', 'checkpoint'} end
  return {'ABSENT'}
end

local digests, refs, items = {}, {}, 0
local pos = 4
while pos <= #manifest do
  local colon = string.find(manifest, ':', pos, true)
  local size = colon and tonumber(string.sub(manifest, pos, colon - 1))
  if not size or colon + size > #manifest then return {'CORRUPT', id} end
  local frame = string.sub(manifest, colon + 1, colon + size)
  local kind = string.sub(frame, 1, 2)
  if kind == 'd ' then
    local digest = string.match(frame, '^d %S* (%S+)$')
    if not digest then return {'CORRUPT', id} end
    digests[#digests + 1] = digest
  elseif kind == 'l ' or kind == 'm ' then
    local name, rest = string.match(frame, '^. (%S*) (.*)$')
    if not name then return {'CORRUPT', id} end
    local log = {}
    for segment, count in string.gmatch(rest, '(%S+),(%d+)') do
      log[#log + 1] = {ARGV[3] .. name .. ':' .. segment, tonumber(count)}
      items = items + tonumber(count)
    end
    refs[#refs + 1] = log
  end
  pos = colon + size + 1
end

local values = {}
for i = 1, #digests, 1000 do
  local found = redis.call('HMGET', KEYS[4], unpack(digests, i, math.min(i + 999, #digests)))
  for j = 1, #found do values[i + j - 1] = found[j] end
end
local writes = redis.call('HGETALL', ARGV[4] .. id)
local open = redis.call('HGETALL', KEYS[5])
if items > tonumber(ARGV[5]) then return {'LONG', now, meta, id, manifest, values, open, writes} end
local logs = {}
for i, log in ipairs(refs) do
  local segments = {}
  for j, ref in ipairs(log) do
    segments[j] = ref[2] > 0 and redis.call('LRANGE', ref[1], 0, ref[2] - 1) or {}
  end
  logs[i] = segments
end
return {'OK', now, meta, id, manifest, values, logs, writes, open}
