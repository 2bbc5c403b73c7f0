import type { AgentField, EnrichedColumn, PlaceField } from '../../datasets/enriched-columns.ts';

/**
 * What texts have been found to say: answers, of which many texts share one, are numbered, and each goes to the engine
 * once. Pure.
 */

/** Different answers that are remembered, to hand each to the engine once: 10 MB. */
const maxAnswers = 20_000;
/**
 * Different texts of a column that are an enumeration to the engine, which carries and writes their numbers in place of
 * them; with more, the list would be larger than what it spares.
 */
const maxEnumerated = 4096;
/** What is told of a text, by the names of fields. */
export type Answer = Readonly<Partial<Record<PlaceField | AgentField, string | number>>>;

/** What is told of a text, as the members of a JSON object; undefined for nothing. */
function renderAnswer(columns: readonly EnrichedColumn[], answer: Answer): string | undefined {
  const members = columns.flatMap(({ column, field }) =>
    answer[field] === undefined ? [] : [[column, answer[field]] as const],
  );
  return members.length === 0 ? undefined : JSON.stringify(Object.fromEntries(members)).slice(1);
}

/** Numbers different answers. */
export interface Numbering {
  /** The number of an answer; undefined where it tells nothing. */
  numberOf(answer: Answer): number | undefined;
  /** How many numbers there are. */
  count(): number;
  /** How many answers are to be handed out. */
  waiting(): number;
  /** Hands out the answers since the last time, members of a JSON array with their numbers as `v`. */
  take(): string[];
  /** All texts that answers had in a column so far; undefined where they are too many to be an enumeration. */
  listTexts(column: string): readonly string[] | undefined;
}

export function createNumbering(columns: readonly EnrichedColumn[]): Numbering {
  // Most texts have the answer of another: it is the same object.
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
      // One that comes again then has a number more.
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
      // A statement ends at the character NUL.
      return all.length > maxEnumerated || all.some((text) => text.includes('\0')) ? undefined : all;
    },
  };
}
