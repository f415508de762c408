-- Prelude: records as frames, each `<length>:<bytes>`, joined; a prefix of frames is a prefix of the bytes.
local frames = {} -- luacheck: ignore frames

function frames.pack(...)
  local parts = {}
  for i, item in ipairs({...}) do
    parts[i] = string.format('%d:', #item) .. item
  end
  return table.concat(parts)
end

-- Answers the items as a list, or nil if the bytes are not frames.
function frames.unpack(data)
  local items, at = {}, 1
  while at <= #data do
    local _, colon, size = string.find(data, '^(%d+):', at)
    if not colon or colon + tonumber(size) > #data then
      return nil
    end
    items[#items + 1] = string.sub(data, colon + 1, colon + tonumber(size))
    at = colon + tonumber(size) + 1
  end
  return items
end
