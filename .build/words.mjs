// Finds discouraged words: `node .build/words.mjs [--lower] [FILE...]`. The list is words.tsv next to this file, with the
// scope of each word: comments, messages (strings and JSX text), docs, tests. Code, `inline code`, links and SQL are
// skipped.
//
// With files, it prints their hits. Without files, it checks all, and accepts at most as many hits per word as
// words-baseline.json allows. `--lower` lowers these numbers to the present ones; without a hit it deletes the file.
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseSync, Visitor } from 'rolldown/utils';

const folder = import.meta.dirname;
const baselineFile = path.join(folder, 'words-baseline.json');

/** Words of the list. A space in a pattern matches a line break too. */
const words = readFileSync(path.join(folder, 'words.tsv'), 'utf8')
  .trimEnd()
  .split('\n')
  .slice(1)
  .map((row) => {
    const [id, pattern, scopes, , write] = row.split('\t');
    return {
      id,
      pattern: new RegExp(pattern.replaceAll(' ', String.raw`\s+`), 'gi'),
      scopes: scopes.split(','),
      write,
    };
  });

/** Returns a pattern for a source: without the start and the ends of a text, and with marks of comments in spaces. */
const inSource = ({ source }) =>
  source.replaceAll(/^\^|\(\?<?!\[`'\]\)/g, '').replaceAll(String.raw`\s+`, String.raw`[\s*/]+`);

/** Matches each source that may have a hit; the others need no parser. */
const anyWord = new RegExp(words.map(({ pattern }) => `(?:${inSource(pattern)})`).join('|'), 'i');

const blank = (text) => text.replaceAll(/[^\n]/g, ' ');
const placeholder = (text) => text.replaceAll(/[^\n]/g, '_');

/** Masks what is not prose, and keeps the length. */
const mask = (text) =>
  text
    .replaceAll(/`[^`]*`/g, placeholder)
    .replaceAll(/https?:\S+/g, placeholder)
    .replaceAll(/\]\([^)\s]*\)/g, (link) => `]${blank(link.slice(1))}`);

/** Lists the paragraphs, list items, headings and table rows of a page, each with its offset. */
function listBlocks(page) {
  const text = page.replaceAll(/^```.*?^```$/gms, blank);
  const starts = /^(?:[ \t]*\n|\s*[-*] |\s*\d+\. |#|\||>)/gm;
  const at = [0, ...[...text.matchAll(starts)].map(({ index }) => index), text.length];
  return at.slice(0, -1).map((from, index) => ({ scope: 'docs', from, text: text.slice(from, at[index + 1]) }));
}

/** Lists the comments of a source; successive line comments are one. */
function listComments(source, comments, scope) {
  const joined = [];
  for (const { type, start, end } of comments) {
    const previous = joined.at(-1);
    const isNext = type === 'Line' && previous?.type === 'Line' && /^\n[ \t]*$/.test(source.slice(previous.end, start));
    if (isNext) previous.end = end;
    else joined.push({ type, start, end });
  }
  return joined.map(({ start, end }) => ({
    scope,
    from: start,
    text: source.slice(start, end).replaceAll(/^[ \t]*(?:\/\*+|\*\/|\*|\/\/)|\*\/$/gm, blank),
  }));
}

/** Lists the strings and JSX texts of two or more words that are not SQL. */
function listStrings(source, program, scope) {
  const found = [];
  const add = (start, text) => {
    const isProse = /[a-z]+ [a-z]+/i.test(text) && !/\b(?:SELECT|FROM|COPY|CREATE|WHERE)\b/.test(text);
    if (isProse) found.push({ scope, from: start, text });
  };
  new Visitor({
    Literal: ({ value, start, end }) => typeof value === 'string' && add(start + 1, source.slice(start + 1, end - 1)),
    JSXText: ({ start, end }) => add(start, source.slice(start, end)),
    TemplateLiteral: ({ start, end, expressions }) => {
      let text = source.slice(start + 1, end - 1);
      for (const one of expressions) {
        const [from, to] = [one.start - start - 1, one.end - start - 1];
        text = text.slice(0, from) + placeholder(text.slice(from, to)) + text.slice(to);
      }
      add(start + 1, text);
    },
  }).visit(program);
  return found;
}

/** Lists the texts of a file, each with its scope and offset. */
function listTexts(file, source) {
  if (file.endsWith('.md')) return listBlocks(source);
  const { program, comments, errors } = parseSync(file, source);
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`);
  const isTest = /(?:^|\/)test\//.test(file);
  return [
    ...listComments(source, comments, isTest ? 'tests' : 'comments'),
    ...listStrings(source, program, isTest ? 'tests' : 'messages'),
  ];
}

/** Lists the hits of a file. */
function findHits(file) {
  const source = readFileSync(file, 'utf8');
  if (!anyWord.test(source)) return [];
  return listTexts(file, source).flatMap(({ scope, from, text }) => {
    const prose = mask(text);
    const skipped = /^\s*/.exec(prose)[0].length;
    return words
      .filter(({ scopes }) => scopes.includes(scope))
      .flatMap(({ id, pattern, write }) =>
        [...prose.slice(skipped).matchAll(pattern)].map(({ index, 0: hit }) => ({
          id,
          at: `${file}:${source.slice(0, from + skipped + index).split('\n').length}`,
          hit: hit.replaceAll(/\s+/g, ' '),
          write,
        })),
      );
  });
}

function listFiles() {
  const inFolders = ['.build', 'docs', 'src', 'test'].flatMap((name) =>
    readdirSync(name, { recursive: true }).map((file) => path.join(name, file)),
  );
  const isChecked = /^(?:src|test|\.build)\/.*\.(?:tsx?|mjs)$|\.md$/;
  return [...readdirSync('.'), ...inFolders].filter((file) => isChecked.test(file));
}

const args = process.argv.slice(2);
const named = args.filter((word) => word !== '--lower');
if (named.length === 0) process.chdir(path.resolve(folder, '..'));
const hits = (named.length > 0 ? named : listFiles()).flatMap(findHits);
const counts = Object.fromEntries(
  words.map(({ id }) => [id, hits.filter((hit) => hit.id === id).length]).filter(([, count]) => count > 0),
);
const allowed = named.length === 0 && existsSync(baselineFile) ? JSON.parse(readFileSync(baselineFile, 'utf8')) : {};
const tooMany = hits.filter(({ id }) => counts[id] > (allowed[id] ?? 0));
if (tooMany.length > 0) {
  const lines = tooMany.map(({ id, at, hit, write }) => `${at}: "${hit}" (${id}): write ${write}`);
  process.stdout.write(`${lines.join('\n')}\nwords: ${lines.length} hits of words with more hits than allowed\n`);
  process.exitCode = 1;
}
if (args.includes('--lower')) {
  const lowered = Object.entries(counts).map(([id, count]) => [id, Math.min(count, allowed[id] ?? 0)]);
  const left = Object.fromEntries(lowered.filter(([, count]) => count > 0));
  if (Object.keys(left).length === 0) rmSync(baselineFile, { force: true });
  else writeFileSync(baselineFile, `${JSON.stringify(left, undefined, 2)}\n`);
}
