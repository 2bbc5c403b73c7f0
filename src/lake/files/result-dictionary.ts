import type { UserAgentField, EnrichedColumn, GeoField } from '../../datasets/enriched-columns.ts';

/** Dictionary-encodes lookup results: many texts share one, and the engine receives each once. Pure. */

/** Limit of distinct results in the dictionary, 10 MB. */
const maxResults = 20_000;
/** Limit of distinct texts of a column for an ENUM. Above it, the list costs more than it saves. */
const maxEnumerated = 4096;
export type LookupResult = Readonly<Partial<Record<GeoField | UserAgentField, string | number>>>;

/** Renders a result as members of a JSON object; undefined if it is empty. */
function renderAnswer(columns: readonly EnrichedColumn[], lookupResult: LookupResult): string | undefined {
  const members = columns.flatMap(({ column, field }) =>
    lookupResult[field] === undefined ? [] : [[column, lookupResult[field]] as const],
  );
  return members.length === 0 ? undefined : JSON.stringify(Object.fromEntries(members)).slice(1);
}

export interface ResultDictionary {
  numberOf(lookupResult: LookupResult): number | undefined;
  count(): number;
  waiting(): number;
  /** Returns the results since the last call, as members of a JSON array with their numbers as `v`. */
  take(): string[];
  /** Lists all texts of a column; undefined if they are too many for an ENUM. */
  listTexts(column: string): readonly string[] | undefined;
}

export function createResultDictionary(columns: readonly EnrichedColumn[]): ResultDictionary {
  const byResult = new Map<LookupResult, number | undefined>();
  const byText = new Map<string, number>();
  const texts = new Map(columns.map(({ column }) => [column, new Set<string>()]));
  let pendingResults: string[] = [];
  let next = 0;
  const numberText = (text: string): number => {
    const known = byText.get(text);
    if (known !== undefined) return known;
    const number = next;
    next += 1;
    pendingResults.push(`{"v":${number},${text}`);
    byText.set(text, number);
    return number;
  };
  const keepTexts = (lookupResult: LookupResult): void => {
    for (const { column, field } of columns) {
      const value = lookupResult[field];
      const known = texts.get(column);
      if (typeof value === 'string' && known !== undefined && known.size <= maxEnumerated) known.add(value);
    }
  };
  return {
    numberOf(lookupResult) {
      const known = byResult.get(lookupResult);
      if (known !== undefined || byResult.has(lookupResult)) return known;
      if (byResult.size >= maxResults) {
        byResult.clear();
        byText.clear();
      }
      const text = renderAnswer(columns, lookupResult);
      const number = text === undefined ? undefined : numberText(text);
      if (number === next - 1) keepTexts(lookupResult);
      byResult.set(lookupResult, number);
      return number;
    },
    count: () => next,
    waiting: () => pendingResults.length,
    take() {
      const taken = pendingResults;
      pendingResults = [];
      return taken;
    },
    listTexts(column) {
      const all = [...(texts.get(column) ?? [])];
      // A NUL character would end the statement.
      return all.length > maxEnumerated || all.some((text) => text.includes('\0')) ? undefined : all;
    },
  };
}
