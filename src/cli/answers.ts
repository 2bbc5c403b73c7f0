import { renderFields, renderTable, type AnswerRow } from './answer-table.ts';
import { isFields } from './answer-values.ts';
import type { CommandContext } from './command.ts';

/** A table is shown when it has so many rows: more of a long list than a person reads, and no matter for memory. */
const rowsAtOnce = 1000;

/** What is told apart in a list of answers: `{"notice":{...}}` is a row of notices. */
interface Part {
  readonly name: string;
  readonly row: AnswerRow;
}

function toPart(answer: AnswerRow): Part {
  const [entry, ...more] = Object.entries(answer);
  const [name, value] = entry ?? ['', undefined];
  return more.length === 0 && isFields(value) ? { name, row: value } : { name: '', row: answer };
}

/** The context of a command whose answers a person reads, and what ends it. */
export interface Shown {
  readonly context: CommandContext;
  /** Writes what is collected; says so where a list was done and had nothing. */
  readonly end: (isDone: boolean) => void;
}

/**
 * Shows the answers of a command for a person: fields, or, where they are a list, a table. What else the command writes
 * comes behind the rows that it has answered before.
 */
export function showAnswers(context: CommandContext, columns: number, isList: boolean): Shown {
  const { print, note } = context;
  let parts: Part[] = [];
  let shown = 0;
  const flush = (): void => {
    const rows = parts.map(({ row }) => row);
    const name = parts[0]?.name ?? '';
    parts = [];
    if (rows.length === 0) return;
    if (shown > 0) print('');
    if (name !== '') print(name);
    shown += rows.length;
    for (const line of renderTable(rows, columns)) print(line);
  };
  const answer = (value: unknown): void => {
    if (!isFields(value)) return print(JSON.stringify(value));
    if (!isList) return renderFields(value, columns).forEach((line) => print(line));
    const part = toPart(value);
    if (parts.length >= rowsAtOnce || (parts.length > 0 && parts[0]?.name !== part.name)) flush();
    parts.push(part);
  };
  const after =
    (write: (line: string) => void) =>
    (line: string): void => {
      flush();
      write(line);
    };
  return {
    context: { ...context, answer, print: after(print), note: after(note) },
    end(isDone) {
      flush();
      if (isDone && isList && shown === 0) note('none');
    },
  };
}
