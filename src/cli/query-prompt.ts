import type { Interface } from 'node:readline';
import type { ReadOnlyEngine } from '../lake/sql/read-only-engine.ts';
import { splitSql } from '../lake/sql/split-sql.ts';
import { AppError } from '../runtime/errors.ts';
import { escapeText } from './answer-values.ts';
import type { CommandContext } from './command.ts';

/** An engine that is removed with what it has written. */
type OpenedEngine = ReadOnlyEngine & { readonly remove: () => Promise<void> };

/** What the prompt works with. */
export interface PromptWork {
  readonly context: CommandContext;
  /** Opens an engine on the newest version of the lake. */
  readonly openEngine: () => Promise<OpenedEngine>;
  readonly runStatement: (engine: ReadOnlyEngine, sql: string) => Promise<void>;
}

const first = 'tributary> ';
const further = '       ... ';

const help = `Statements end with a semicolon and may take several lines.
.tables         the views and their columns
.refresh        the newest version of the lake
.help           this
.quit, Ctrl-D   ends
Ctrl-C ends the running statement, or drops the one that is being written.`;

const tablesSql = `SELECT table_name AS "view", string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns() WHERE NOT internal AND schema_name = current_schema() AND database_name = current_database()
GROUP BY table_name ORDER BY table_name`;

/** A prompt may be open for longer than the lake keeps the files of the version that it reads. */
const goneFile = /No such file or directory|No files found/;
const refreshHint = 'The files of this version are gone from the lake: .refresh reads the newest one.';

/** Says what was wrong, on as many lines as the engine says it: the mark below a word stays below it. */
function describe(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const own = goneFile.test(message) ? refreshHint : error instanceof AppError ? error.hint : undefined;
  const hint = own === undefined ? '' : `\n${own}`;
  return `${message}${hint}`.split('\n').map(escapeText).join('\n');
}

/**
 * Runs a prompt until `.quit` or the end of the input: a statement when its semicolon was given, an error is shown and
 * ends nothing. Returns the exit code. Errors: those of the first engine.
 */
export async function runQueryPrompt(openPrompt: () => Interface, work: PromptWork): Promise<number> {
  const { context, openEngine, runStatement } = work;
  const { note, stop } = context;
  let engine = await openEngine();
  const prompt = openPrompt();
  let written = '';
  let isRunning = false;
  const ask = (): void => {
    prompt.setPrompt(written === '' ? first : further);
    prompt.prompt();
  };
  prompt.on('SIGINT', () => {
    if (isRunning) return engine.interrupt();
    written = '';
    note('');
    ask();
  });
  stop.addEventListener('abort', () => prompt.close(), { once: true });
  /** Returns whether the prompt goes on. */
  const command = async (word: string): Promise<boolean> => {
    if (['.quit', '.exit', '.q'].includes(word)) return false;
    if (word === '.tables') await runStatement(engine, tablesSql);
    else if (word === '.refresh') {
      const newer = await openEngine();
      await engine.remove();
      engine = newer;
    } else if (word === '.help') note(help);
    else note(`there is no ${escapeText(word)}: .help lists what there is`);
    return true;
  };
  const take = async (line: string): Promise<boolean> => {
    if (written === '' && line.trimStart().startsWith('.')) return command(line.trim());
    const { statements, rest } = splitSql(`${written}${line}\n`);
    written = rest === '' ? '' : `${rest}\n`;
    for (const statement of statements) await runStatement(engine, statement);
    return true;
  };
  try {
    note("SQL on the lake as it is now, which is only read. '.help' lists what else there is.");
    ask();
    for await (const line of prompt) {
      isRunning = true;
      try {
        if (!(await take(line))) break;
      } catch (error) {
        note(describe(error));
      } finally {
        isRunning = false;
      }
      ask();
    }
    return 0;
  } finally {
    prompt.close();
    await engine.remove();
  }
}
