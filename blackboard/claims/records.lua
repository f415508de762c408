-- Prelude: the two records of an effect within a thread, as frames. Needs frames.lua.
-- open:    fence, owner, attempt, started_us, semantics, fingerprint, external_ref, op, state (running|unknown)
-- settled: checkpoint ("" outside a commit), settled_us, state (done|failed|retry|abandoned), attempt, fingerprint, op, fence, owner, begun, body
-- luacheck: read globals frames
local records = {} -- luacheck: ignore records

local OPEN = {'fence', 'owner', 'attempt', 'started', 'semantics', 'fingerprint', 'external_ref', 'op', 'state'}
local SETTLED = {'checkpoint', 'settled', 'state', 'attempt', 'fingerprint', 'op', 'fence', 'owner', 'begun', 'body'}

local function parse(data, names)
  if not data then
    return nil
  end
  local items, record = frames.unpack(data), {}
  if not items or #items ~= #names then
    return {corrupt = true}
  end
  for i, name in ipairs(names) do
    record[name] = items[i]
  end
  return record
end

local function spell(record, names)
  local items = {}
  for i, name in ipairs(names) do
    items[i] = record[name]
  end
  return frames.pack(unpack(items))
end

function records.open(record)
  return spell(record, OPEN)
end

function records.settled(record)
  return spell(record, SETTLED)
end

-- Answers the open record and the settled one. Where both stand, a crash left one of them: the settled one counts if
-- its checkpoint was reached and no later attempt is open.
function records.read(open_key, effects_key, latest_key, history_key, key)
  local open = parse(redis.call('HGET', open_key, key), OPEN)
  local settled = parse(redis.call('HGET', effects_key, key), SETTLED)
  if open and open.corrupt or settled and settled.corrupt then
    return nil, nil, {'CORRUPT'}
  end
  if open and settled then
    local id = settled.checkpoint
    local reached = id == '' or redis.call('GET', latest_key) == id or redis.call('ZSCORE', history_key, id)
    if not reached or tonumber(open.attempt) > tonumber(settled.attempt) then
      settled = nil
    end
  end
  return open, settled
end
