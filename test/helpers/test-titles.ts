import { parseAst } from 'vitest/node';

/**
 * Reads the titles of the tests from the source text, and checks that each is a sentence, so that a failure can be read
 * without the file. Names of groups (`describe`) are not checked.
 */

/** The title of one test in its file: `${...}`, `%s` and `$name` represent values of the case. */
export interface TestTitle {
  readonly line: number;
  readonly title: string;
}

/** The used part of a node of the syntax tree. */
type SyntaxNode = { readonly type: string; readonly start: number; readonly end: number } & Readonly<
  Record<string, unknown>
>;

const testFunctions = ['it', 'test'];

function isNode(value: unknown): value is SyntaxNode {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

/** Returns the start of a chain of calls and members: `it` of `it.runIf(isAsked).each(cases)`. */
function findRoot(node: unknown): string | undefined {
  if (!isNode(node)) return undefined;
  if (node.type === 'Identifier') return String(node['name']);
  return findRoot(node['callee'] ?? node['object']);
}

/** Returns the title of a call, without its quotes; undefined for a call that names no test, such as that of `each`. */
function findTitle(node: SyntaxNode, text: string): string | undefined {
  if (node.type !== 'CallExpression' || !testFunctions.includes(findRoot(node['callee']) ?? '')) return undefined;
  const [first] = node['arguments'] as readonly SyntaxNode[];
  if (first === undefined) return undefined;
  const isText = first.type === 'TemplateLiteral' || (first.type === 'Literal' && typeof first['value'] === 'string');
  return isText ? text.slice(first.start + 1, first.end - 1) : undefined;
}

/** Reads the titles of the tests in a TypeScript file, in order. */
export function readTestTitles(text: string): TestTitle[] {
  const found: TestTitle[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(visit);
    if (!isNode(value)) return;
    const title = findTitle(value, text);
    if (title !== undefined) found.push({ line: text.slice(0, value.start).split('\n').length, title });
    Object.values(value).forEach(visit);
  };
  visit(parseAst(text, { lang: 'ts' }));
  return found;
}

/**
 * Returns why a title is not a sentence, as far as a pattern shows it; undefined if it is one. A missing verb is not
 * found.
 */
export function findTitleFault(title: string): string | undefined {
  if (title.trim().split(/\s+/).length < 3) return 'has fewer than three words';
  if (!/^[\p{Lu}\d'"`%$]/u.test(title)) return 'begins with no capital, quoted name or value of its case';
  if (/[.,;:]$/.test(title)) return 'ends with a punctuation mark';
  return undefined;
}
