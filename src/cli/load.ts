import { parseArgs } from 'node:util';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { assertGivenOnce, type Command, type CommandContext } from './command.ts';
import { loadable, runLoadDataset, runLoadList, runLoadUndo, type LoadWords } from './load-dataset.ts';
import { loadTitlesUsage, runLoadTitles } from './load-titles.ts';

/** Of the service alone (health/load-routes.ts): the input is passed on, and an error is answered with its code. */
const byHttp = 'by-http';

/** What stands behind a name on the command line. */
type Load = (words: LoadWords, context: CommandContext) => Promise<number>;

const usage = `tributary load DATASET FILE... [--map FILE] [--app ID] [--max-bad N] [--format csv|ndjson|parquet] [--data DIR]
tributary load list|undo ID [--data DIR]
${loadTitlesUsage}`;

function assertFiles({ files }: LoadWords, what: string, count?: number): void {
  if (files.length === 0 || (count !== undefined && files.length !== count))
    throw new AppError('usage', `expected ${what}`, { hint: `Usage: ${usage}` });
}

/** What can be loaded, and asked of loads, by its name on the command line. */
const loads: Readonly<Record<string, Load>> = {
  ...Object.fromEntries(
    loadable.map((dataset): [string, Load] => [
      dataset.table,
      (words, context) => {
        assertFiles(words, 'FILE');
        return runLoadDataset(dataset, words, context);
      },
    ]),
  ),
  titles: (words, context) => {
    const { files, data, ...others } = words;
    const option = Object.keys(others)[0];
    if (option !== undefined)
      throw new AppError('usage', `'load titles' takes no --${option}`, { hint: `Usage: ${loadTitlesUsage}` });
    return runLoadTitles(files, data, context);
  },
  list: (words, context) => runLoadList(words.data, context),
  undo: (words, context) => {
    assertFiles(words, 'ID', 1);
    return runLoadUndo(words.files.join(''), words.data, context);
  },
};

/** Parses the words: a name, its files, options. Error: `usage`. */
function parseLoad(args: readonly string[]): { readonly name: string; readonly words: LoadWords } {
  try {
    const option = { type: 'string' } as const;
    const { values, positionals, tokens } = parseArgs({
      args: [...args],
      options: {
        data: option,
        map: option,
        app: option,
        'max-bad': option,
        format: option,
        [byHttp]: { type: 'boolean' },
      },
      allowPositionals: true,
      strict: true,
      tokens: true,
    });
    assertGivenOnce(tokens);
    const empty = Object.entries(values).find(([, value]) => value === '')?.[0];
    if (empty !== undefined) throw new Error(`--${empty} has an empty value`);
    const [name = '', ...files] = positionals;
    if (files.includes('')) throw new Error('FILE is empty');
    if (files.filter((file) => file === '-').length > 1) throw new Error('standard input can be read once');
    return { name, words: { ...values, files } };
  } catch (error) {
    throw new AppError('usage', describeError(error), { hint: `Usage: ${usage}` });
  }
}

async function runLoad(args: readonly string[], context: CommandContext): Promise<number> {
  const { name, words } = parseLoad(args);
  const load = Object.hasOwn(loads, name) ? loads[name] : undefined;
  if (load === undefined)
    throw new AppError('usage', `'load' takes ${Object.keys(loads).join(', ')}, not '${name}'`, {
      hint: `Usage: ${usage}`,
    });
  return load(words, context);
}

/** `tributary load NAME ...`: takes an operator's own data in. */
export const loadCommand: Command = {
  name: 'load',
  usage,
  summary: 'load rows of a dataset, or titles, from files; list loads, undo one',
  details: [
    ...loadable.map(({ table, description }) => `${table.padEnd(20)} ${description}`),
    'FILE      CSV with a header, JSON lines or Parquet, also compressed by gzip; - for standard input',
    '          fields have the names of selectors; each file is loaded whole or not at all, and never twice',
    '--map     JSON: names of the file and the fields that they are, null to drop one: {"sum": "total", "note": null}',
    '--app     the app of rows that name none by idApp or SDKKey',
    '--max-bad so many rows may be bad, and are kept as failed ones; none by default',
    'titles    rows of field, id and title, such as idCampaign,66,Winter: CSV or JSON lines; exports show them',
    '          a row replaces the title that its id had, and an empty title takes it away; all files are taken, or none',
    'undo ID   takes the rows of a load out again',
  ],
  async run(args, context) {
    try {
      return await runLoad(args, context);
    } catch (error) {
      if (!args.includes(`--${byHttp}`)) throw error;
      context.answer({ error: describeError(error), ...(isAppError(error) ? { code: error.code } : {}) });
      return 1;
    }
  },
};
