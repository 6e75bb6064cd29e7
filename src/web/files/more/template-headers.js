// Headers as a user types them. Plain functions.

/** Headers of lines as `Name: value`. @param {string} text @returns {{ name: string, value: string }[]} */
export function headersOf(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line) => {
    const [name, ...value] = line.split(":");
    return { name: name.trim(), value: value.join(":").trim() };
  });
}
