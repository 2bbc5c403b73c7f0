const space = /[ \t\n\r]*/y;
/** Matches a text, a number or a word of JSON. */
const scalar =
  /"(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

/** Hints by the text at the fault; the first match counts. */
const hints: readonly (readonly [RegExp, string])[] = [
  [/^$/, 'the text ends too early'],
  [/^'/, 'use double quotes, not single quotes'],
  [/^(?:[+-]?(?:NaN|Infinity|nan|inf)|undefined|None)\b/, 'JSON has no NaN, Infinity or None: leave the field out'],
  [/^(?:True|False|NULL|Null)\b/, 'write true, false and null in small letters'],
  [/^(?:\/[/*]|#)/, 'JSON has no comments'],
  [/^(?:\+|-?\.?\d)/, 'a number has no plus sign, no leading zero, and digits on both sides of its point'],
  [/^[A-Za-z_$]/, 'write names and texts in double quotes'],
];

type State = 'value' | 'first value' | 'name' | 'first name' | 'colon' | 'end';

/** The first character that violates JSON. `close` closes the innermost open list or object. */
interface Stop {
  readonly at: number;
  readonly state: State;
  readonly close: string | undefined;
  readonly isAfterComma: boolean;
}

/** Returns the length of the match of a sticky pattern at a place; 0 without one. */
function matchAt(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0].length ?? 0;
}

function findStop(text: string): Stop {
  const closes: string[] = [];
  let [at, previous, state]: [number, string, State] = [0, '', 'value'];
  for (;;) {
    at += matchAt(space, text, at);
    const [mark, close, length] = [text[at] ?? '', closes.at(-1), matchAt(scalar, text, at)];
    const isValue = state === 'value' || state === 'first value';
    if (mark === close && (state === 'end' || state.startsWith('first'))) {
      closes.pop();
      state = 'end';
    } else if (state === 'end' && mark === ',' && close !== undefined) state = close === '}' ? 'name' : 'value';
    else if (state === 'colon' && mark === ':') state = 'value';
    else if (state.endsWith('name') && mark === '"' && length > 0) state = 'colon';
    else if (isValue && (mark === '{' || mark === '[')) {
      closes.push(mark === '{' ? '}' : ']');
      state = mark === '{' ? 'first name' : 'first value';
    } else if (isValue && length > 0) state = 'end';
    else return { at, state, close, isAfterComma: previous === ',' };
    previous = mark;
    at += Math.max(1, length);
  }
}

function findHint(rest: string, { state, close, isAfterComma }: Stop): string | undefined {
  if (rest !== '' && state === 'end')
    return close === undefined ? 'more follows the JSON value' : `a comma or ${close} is expected`;
  if (rest !== '' && state === 'colon') return 'a colon is expected';
  if (rest.startsWith('"')) return 'the text has no closing quote, or a character that must be escaped';
  if (isAfterComma && rest[0] === close) return 'remove the comma before it';
  return hints.find(([pattern]) => pattern.test(rest))?.[1];
}

/** Describes why a text is not JSON: line and column from 1, and a hint. Repeats nothing of the text: it is logged. */
export function describeJsonError(text: string): string {
  const stop = findStop(text);
  const lines = text.slice(0, stop.at).split(/\r\n|\r|\n/);
  const hint = findHint(text.slice(stop.at), stop);
  const place = `line ${lines.length}, column ${Array.from(lines.at(-1) ?? '').length + 1}`;
  return `the body is not valid JSON at ${place}${hint === undefined ? '' : `: ${hint}`}`;
}
