import { parseAst } from 'vitest/node';

/**
 * The titles of the tests, read off the source text, and the rule that each is a sentence by itself: a failure is read
 * without the file at hand. Names of groups (`describe`) are no sentences and are not read.
 */

/** The title of one test as its file has it: `${...}`, `%s` and `$name` stand for values of the case. */
export interface TestTitle {
  readonly line: number;
  readonly title: string;
}

/** A node of the syntax tree, as far as it is read here. */
type SyntaxNode = { readonly type: string; readonly start: number; readonly end: number } & Readonly<
  Record<string, unknown>
>;

const testFunctions = ['it', 'test'];

function isNode(value: unknown): value is SyntaxNode {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

/** What a chain of calls and members begins with: `it` of `it.runIf(isAsked).each(cases)`. */
function findRoot(node: unknown): string | undefined {
  if (!isNode(node)) return undefined;
  if (node.type === 'Identifier') return String(node['name']);
  return findRoot(node['callee'] ?? node['object']);
}

/** The title of a call, without its quotes; undefined for a call that names no test, such as that of `each`. */
function findTitle(node: SyntaxNode, text: string): string | undefined {
  if (node.type !== 'CallExpression' || !testFunctions.includes(findRoot(node['callee']) ?? '')) return undefined;
  const [first] = node['arguments'] as readonly SyntaxNode[];
  if (first === undefined) return undefined;
  const isText = first.type === 'TemplateLiteral' || (first.type === 'Literal' && typeof first['value'] === 'string');
  return isText ? text.slice(first.start + 1, first.end - 1) : undefined;
}

/** The titles of the tests in the text of a TypeScript file, in their order. */
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
 * Says what keeps a title from being a sentence, as far as a pattern sees it; undefined when nothing does. A verb is
 * beyond it.
 */
export function findTitleFault(title: string): string | undefined {
  if (title.trim().split(/\s+/).length < 3) return 'has fewer than three words';
  if (!/^[\p{Lu}\d'"`%$]/u.test(title)) return 'begins with no capital, quoted name or value of its case';
  if (/[.,;:]$/.test(title)) return 'ends with a punctuation mark';
  return undefined;
}
