import type { AgentField, EnrichedColumn, PlaceField } from '../../datasets/enriched-columns.ts';

/** Numbers the answers to texts: many texts share one, and each is sent to the engine once. Pure. */

/** Distinct answers that are remembered: 10 MB. */
const maxAnswers = 20_000;
/**
 * Distinct texts of a column up to which the engine stores it as an enumeration. With more, the list would outweigh the
 * savings.
 */
const maxEnumerated = 4096;
/** What is known of a text, by field. */
export type Answer = Readonly<Partial<Record<PlaceField | AgentField, string | number>>>;

/** Renders an answer as members of a JSON object; undefined if it is empty. */
function renderAnswer(columns: readonly EnrichedColumn[], answer: Answer): string | undefined {
  const members = columns.flatMap(({ column, field }) =>
    answer[field] === undefined ? [] : [[column, answer[field]] as const],
  );
  return members.length === 0 ? undefined : JSON.stringify(Object.fromEntries(members)).slice(1);
}

export interface Numbering {
  /** Returns the number of an answer; undefined if it is empty. */
  numberOf(answer: Answer): number | undefined;
  count(): number;
  /** Returns how many answers wait for `take`. */
  waiting(): number;
  /** Returns the answers since the last call, as members of a JSON array with their numbers as `v`. */
  take(): string[];
  /** Returns all texts of a column so far; undefined if there are too many for an enumeration. */
  listTexts(column: string): readonly string[] | undefined;
}

export function createNumbering(columns: readonly EnrichedColumn[]): Numbering {
  // Most texts share an answer: the same object.
  const byAnswer = new Map<Answer, number | undefined>();
  const byText = new Map<string, number>();
  const texts = new Map(columns.map(({ column }) => [column, new Set<string>()]));
  let answers: string[] = [];
  let next = 0;
  const numberText = (text: string): number => {
    const known = byText.get(text);
    if (known !== undefined) return known;
    const number = next;
    next += 1;
    answers.push(`{"v":${number},${text}`);
    byText.set(text, number);
    return number;
  };
  const keepTexts = (answer: Answer): void => {
    for (const { column, field } of columns) {
      const value = answer[field];
      const known = texts.get(column);
      if (typeof value === 'string' && known !== undefined && known.size <= maxEnumerated) known.add(value);
    }
  };
  return {
    numberOf(answer) {
      const known = byAnswer.get(answer);
      if (known !== undefined || byAnswer.has(answer)) return known;
      // If it returns, it gets another number.
      if (byAnswer.size >= maxAnswers) {
        byAnswer.clear();
        byText.clear();
      }
      const text = renderAnswer(columns, answer);
      const number = text === undefined ? undefined : numberText(text);
      if (number === next - 1) keepTexts(answer);
      byAnswer.set(answer, number);
      return number;
    },
    count: () => next,
    waiting: () => answers.length,
    take() {
      const taken = answers;
      answers = [];
      return taken;
    },
    listTexts(column) {
      const all = [...(texts.get(column) ?? [])];
      // A statement ends at a NUL character.
      return all.length > maxEnumerated || all.some((text) => text.includes('\0')) ? undefined : all;
    },
  };
}
