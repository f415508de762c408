-- Walk from a checkpoint to its ancestors, until each of some channels has been met or a page is full.
-- KEYS: meta, latest, history, values
-- ARGV: id, inclusive, most, most_items, checkpoints, logs, writes, channel...
-- Returns: {"OK", next, row...} | {"NONE"} | {"REGRESSED", what} | {"CORRUPT", id}
--
-- id is '' for the newest; it belongs to the page only if inclusive is 1. next is where the next page begins, '' at the end. A row is
-- {id, manifest, writes, values, logs} and has the contents of those channels only that no younger ancestor has; logs is '' if there
-- are more than most_items. checkpoints, logs and writes are what stands before the ids in the keys that are followed.

local now = now_us()
local m = read_meta(KEYS[1], now)
local id = ARGV[1]
if not m.status and redis.call('ZCARD', KEYS[3]) > 0 then return {'REGRESSED', 'meta'} end
if not m.incarnation or m.expired then return {'NONE'} end
if id == '' then id = redis.call('GET', KEYS[2]) end
local inclusive, most, most_items = ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local wanted, left = {}, 0
for i = 8, #ARGV do
  if not wanted[ARGV[i]] then left = left + 1 end
  wanted[ARGV[i]] = true
end

local function encoded(text)
  return (string.gsub(text, '[^A-Za-z0-9_.~-]', function(c) return string.format('%%%02X', string.byte(c)) end))
end

-- Read the frames of a manifest: its parent, and of the channels that are asked for the digests, the segments, how many items, and
-- which ones it has.
local function parse(manifest, asked)
  local parent, digests, logs, items, met = '', {}, {}, 0, {}
  local pos = 4
  while pos <= #manifest do
    local colon = string.find(manifest, ':', pos, true)
    local size = colon and tonumber(string.sub(manifest, pos, colon - 1))
    if not size or colon + size > #manifest then return nil end
    local frame = string.sub(manifest, colon + 1, colon + size)
    local kind = string.match(frame, '^([hidlm]) ')
    if kind == 'h' then
      parent = cjson.decode(string.sub(frame, 3)).parent or ''
    elseif kind then
      local name, rest = string.match(frame, '^. (%S*) ?(.*)$')
      if asked[name] then
        met[#met + 1] = name
        if kind == 'd' then digests[#digests + 1] = rest end
        if kind == 'l' or kind == 'm' then
          local log = {}
          for segment, count in string.gmatch(rest, '(%S+),(%d+)') do
            log[#log + 1] = {ARGV[6] .. name .. ':' .. segment, tonumber(count)}
            items = items + tonumber(count)
          end
          logs[#logs + 1] = log
        end
      end
    end
    pos = colon + size + 1
  end
  return encoded(parent), digests, logs, items, met
end

local function fetched(logs)
  local found = {}
  for i, log in ipairs(logs) do
    found[i] = {}
    for j, ref in ipairs(log) do
      found[i][j] = ref[2] > 0 and redis.call('LRANGE', ref[1], 0, ref[2] - 1) or {}
    end
  end
  return found
end

local rows, passed = {'OK', ''}, {}
while id and id ~= '' and left > 0 and not passed[id] do
  passed[id] = true
  if #rows - 2 >= most then
    rows[2] = id
    break
  end
  local manifest = redis.call('GET', ARGV[5] .. id)
  if not manifest then break end
  local parent, digests, logs, items, met = parse(manifest, inclusive and wanted or {})
  if not parent then return {'CORRUPT', id} end
  if inclusive then
    local values = #digests > 0 and redis.call('HMGET', KEYS[4], unpack(digests)) or {}
    rows[#rows + 1] = {id, manifest, redis.call('HGETALL', ARGV[7] .. id), values, items > most_items and '' or fetched(logs)}
    for _, name in ipairs(met) do
      wanted[name] = nil
      left = left - 1
    end
  end
  inclusive, id = true, parent
end
return rows
