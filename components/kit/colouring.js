// Python in colours: the pieces of each line of a program.

const PYTHON_TOKEN = new RegExp([
  /(?<comment>#.*)/, /(?<string>[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
  /(?<number>\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?j?)\b)/,
  /(?<keyword>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|match|case)\b)/,
  /(?<constant>\b(?:True|False|None|self)\b)/, /(?<name>[\p{L}_][\p{L}\p{N}_]*)/, /(?<other>[^])/,
].map(r => r.source).join("|"), "gu")

// Lines of [class, text] pairs; a token over several lines is cut at the line ends.
export function colouredLines(program) {
  const lines = [[]]
  for (const match of program.matchAll(PYTHON_TOKEN)) {
    const [kind] = Object.entries(match.groups).find(([, text]) => text !== undefined)
    match[0].split("\n").forEach((piece, i) => {
      if (i) lines.push([])
      const line = lines.at(-1)
      if (!piece) return
      if (line.length && line.at(-1)[0] === kind) line.at(-1)[1] += piece
      else line.push([kind, piece])
    })
  }
  return lines
}
