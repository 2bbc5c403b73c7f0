import { describeError, isAppError } from '../runtime/errors.ts';
import type { Dataset } from '../datasets/dataset.ts';
import { verb, type Group } from './command.ts';
import { loadable, loadOptions, runLoadDataset, runLoadList, runLoadUndo } from './load-dataset.ts';
import { runLoadTitles } from './load-titles.ts';
import { file, many, text } from './words.ts';

/** An abbreviation keeps its capitals. */
const withoutCapital = (sentence: string): string =>
  sentence.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());

const loadDataset = (dataset: Dataset) =>
  verb({
    name: dataset.table,
    summary: `load ${withoutCapital(dataset.description).replace(/\.$/, '')}`,
    words: {
      FILE: many(file('CSV with a header, JSON lines, a JSON array or Parquet, also gzip; - for standard input')),
    },
    options: loadOptions,
    details: ['Fields have the names of selectors; each file is loaded whole or not at all, and never twice.'],
    examples: [`load ${dataset.table} rows.csv`, `load ${dataset.table} --map map.json --max-bad 10 rows.ndjson.gz`],
    exitCodes: { 1: 'a file was refused: its line says why' },
    run: ({ FILE: files, ...options }, context) => runLoadDataset(dataset, { files, ...options }, context),
  });

const titles = verb({
  name: 'titles',
  summary: 'load what ids of campaigns, partners, links and the like are called in exports',
  words: { FILE: many(file('rows of field, id and title, such as idCampaign,66,Winter: CSV or JSON lines; - too')) },
  details: [
    'A row replaces the title that its id had, and an empty title takes it away; all files are taken, or none.',
  ],
  examples: ['load titles titles.csv'],
  exitCodes: { 1: 'a file has bad lines, which are answered; nothing was changed' },
  run: ({ FILE: files, data }, context) => runLoadTitles(files, data, context),
});

const list = verb({
  name: 'list',
  summary: 'list the loads of every dataset',
  isList: true,
  examples: ['load list'],
  run: ({ data }, context) => runLoadList(data, context),
});

const undo = verb({
  name: 'undo',
  summary: 'take the rows of a load out again',
  words: { ID: text("the load, as 'tributary load list' has it") },
  examples: ['load undo 4f1c2a90'],
  run: ({ ID: load, data }, context) => runLoadUndo(load, data, context),
});

/** `tributary load NAME ...`: takes an operator's own data in. */
export const loadCommand: Group = {
  name: 'load',
  summary: 'load rows of a dataset, or titles, from files; list loads, undo one',
  usage: [
    'DATASET FILE... [--map FILE] [--app ID] [--max-bad N] [--restore-erased] [--format csv|ndjson|parquet] [--allow-empty] [--data DIR]',
    'titles FILE... [--data DIR]',
    'list [--data DIR]',
    'undo ID [--data DIR]',
  ],
  verbs: [...loadable.map(loadDataset), titles, list, undo],
  recover(error, words, { answer }) {
    if (!words.includes('--by-http')) throw error;
    answer({ error: describeError(error), ...(isAppError(error) ? { code: error.code } : {}) });
    return 1;
  },
};
