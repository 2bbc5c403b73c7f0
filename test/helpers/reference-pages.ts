import type { CommandSpec } from '../../src/cli/command.ts';
import { commonOptions } from '../../src/cli/command.ts';
import { flagOf, usagesOf } from '../../src/cli/program.ts';
import type { OptionSpec } from '../../src/cli/option-specs.ts';
import { createCompactMetrics, registerBacklogGauges, registerTableGauges } from '../../src/compact/compact-metrics.ts';
import type { Setting } from '../../src/config/setting-kinds.ts';
import { commandVariables, settings } from '../../src/config/settings.ts';
import { traceSettings } from '../../src/config/trace-settings.ts';
import { createSignInGuard } from '../../src/console/sign-in-guard.ts';
import { datasets, events, getExport, type Dataset } from '../../src/datasets/dataset.ts';
import { eventAliases } from '../../src/datasets/dictionaries.ts';
import { eventFields } from '../../src/datasets/event-fields.ts';
import type { Column, FieldSchema } from '../../src/datasets/field-schema.ts';
import { describeExportForm } from '../../src/export/api/export-form-metadata.ts';
import { parameters } from '../../src/export/api/parameters.ts';
import { createExportMetrics, registerRequestGauges } from '../../src/export/export-health.ts';
import { registerDiskGauges, registerServiceGauges } from '../../src/ops/service-gauges.ts';
import { createIngestMetrics, followIngest } from '../../src/ingest/ingest-metrics.ts';
import { machineClock } from '../../src/runtime/clock.ts';
import { problemTable, type Urgency } from '../../src/runtime/problems/problem-table.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics, type Metrics } from '../../src/runtime/metrics.ts';
import { createSpanCounter } from '../../src/runtime/tracing/tracing.ts';
import { loadDeclaredCommands } from './declared-commands.ts';

/** Returns an anchor that does not change with the text around it. */
const anchor = (id: string): string => `<a id="${id}"></a>`;
const code = (text: string): string => `\`${text}\``;
const codes = (texts: readonly string[]): string => texts.map(code).join(', ');

/** Formats a table cell: without line breaks, with escaped bars. */
const toCell = (text: string): string => text.replaceAll(/\s+/g, ' ').replaceAll('|', '\\|');

function toTable(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [heads, heads.map(() => '---'), ...rows.map((cells) => cells.map(toCell))];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Turns a line of the help into a sentence. */
function sentence(text: string): string {
  const shown = text.replaceAll(/'(tributary [^']+)'/g, '`$1`');
  return `${shown.charAt(0).toUpperCase()}${shown.slice(1)}${/[.:]$/.test(shown) ? '' : '.'}`;
}

const page = (title: string, about: string, ...parts: readonly string[]): string =>
  `${[`# ${title}`, about, '<!-- Made by `make docs` from the declarations in the code. -->', ...parts].join('\n\n')}\n`;

const spans = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
] as const;

/** Formats a number, also in its largest whole unit: `5000 (5 s)`. */
function showNumber(value: number, unit: Setting<unknown>['unit']): string {
  if (unit === 'bytes') {
    const power = [3, 2, 1].find((each) => value > 0 && value % 1024 ** each === 0);
    return power === undefined ? `${value}` : `${value} (${value / 1024 ** power} ${'KMG'.charAt(power - 1)}iB)`;
  }
  const seconds = unit === 'ms' ? value / 1000 : unit === 's' ? value : 0;
  const span = spans.find(([, size]) => seconds > 0 && seconds % size === 0);
  return span === undefined || span[0] === unit ? `${value}` : `${value} (${seconds / span[1]} ${span[0]})`;
}

function showDefault({ usual, fallback, unit }: Setting<unknown>): string {
  if (usual !== undefined) return /[/.]/.test(usual) && !usual.includes(' ') ? code(usual) : usual;
  if (typeof fallback === 'number') return showNumber(fallback, unit);
  return typeof fallback === 'string' ? code(fallback) : 'none';
}

function describeNotes({ name, notes: text, isSecret }: Setting<unknown>): string | undefined {
  if (isSecret !== true) return text;
  return [text, `${code(`TRIBUTARY_${name}_FILE`)} names a file with the value.`]
    .filter((part) => part !== undefined)
    .join(' ');
}

function renderSettings(): string {
  const all: readonly Setting<unknown>[] = Object.values(settings);
  const rows = all.map((setting) => {
    const { name, values, unit = '', about } = setting;
    const variable = `TRIBUTARY_${name}`;
    return [`${anchor(variable.toLowerCase())}${code(variable)}`, showDefault(setting), unit, values, about];
  });
  const notes = all
    .map((setting) => [setting.name, describeNotes(setting)] as const)
    .flatMap(([name, text]) =>
      text === undefined ? [] : [`- [${code(`TRIBUTARY_${name}`)}](#tributary_${name.toLowerCase()}): ${text}`],
    );
  const others = Object.entries(commandVariables).map(([name, about]) => [
    `${anchor(`tributary_${name.toLowerCase()}`)}${code(`TRIBUTARY_${name}`)}`,
    about,
  ]);
  const traces: readonly Setting<unknown>[] = Object.values(traceSettings);
  return page(
    'Settings',
    'The service reads its settings from environment variables when it starts, and reports all invalid ones at once.',
    'An empty variable counts as unset. Options of commands, such as `--data`, override variables.',
    toTable(['Variable', 'Default', 'Unit', 'Values', 'Description'], rows),
    '## Notes',
    notes.join('\n'),
    '## Variables of traces',
    'The names are those of OpenTelemetry. Its SDK also reads `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_EXPORTER_OTLP_COMPRESSION`, `OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_...`. [Traces](../watch.md#traces) has an example.',
    toTable(
      ['Variable', 'Default', 'Values', 'Description'],
      traces.map((setting) => [
        `${anchor(setting.name.toLowerCase())}${code(setting.name)}`,
        showDefault(setting),
        setting.values,
        setting.about,
      ]),
    ),
    '## Variables of commands',
    toTable(['Variable', 'Description'], others),
  );
}

const urgencies: Readonly<Record<Urgency, string>> = {
  blocking: 'Problems that stop the service or soon will',
  degraded: 'Problems that delay work',
  transient: 'Problems that end without help',
  warning: 'Warnings',
};

function renderProblems(): string {
  const parts = Object.entries(urgencies).flatMap(([urgency, title]) => {
    const kinds = Object.entries(problemTable).filter(([, kind]) => kind.urgency === urgency);
    const rows = kinds.map(([name, { about, action }]) => [`${anchor(name)}${code(name)}`, about, action]);
    return [`## ${title}`, toTable(['Code', 'Meaning', 'Action'], rows)];
  });
  return page(
    'Problems and warnings',
    'Codes that `/readyz`, `tributary status` and the log report, with the action for the operator.',
    'No acknowledged event is lost during a problem. Exception: `stream_fault` reports events that may be missing.',
    'Rules and scripts may match codes; messages may change. The [glossary](../glossary.md) defines the terms.',
    ...parts,
  );
}

interface Metric {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly labels: readonly string[];
}

/** Creates metrics that record what is registered, with the labels. */
function createRecorder(): { readonly metrics: Metrics; readonly recorded: Metric[] } {
  const inner = createMetrics();
  const recorded: Metric[] = [];
  const record = (type: string, name: string, help: string, labels: readonly string[] = []): void =>
    void recorded.push({ name: `tributary_${name}`, type, help, labels });
  const metrics: Metrics = {
    ...inner,
    counter(name, help, labels) {
      record('counter', name, help, labels);
      return inner.counter(name, help, labels);
    },
    tally(name, help, label) {
      record('counter', name, help, [label]);
      return inner.tally(name, help, label);
    },
    gauge(name, help, labels) {
      record('gauge', name, help, labels);
      return inner.gauge(name, help, labels);
    },
    readGauge(name, help, read) {
      record('gauge', name, help);
      inner.readGauge(name, help, read);
    },
    histogram(name, help, buckets, labels) {
      record('histogram', name, help, labels);
      return inner.histogram(name, help, buckets, labels);
    },
  };
  return { metrics, recorded };
}

const never = (): Promise<never> => Promise.reject(new Error('no broker'));
const none = (): number => 0;

/** Registers the metrics of every process. */
function registerAll(metrics: Metrics): void {
  createIngestMetrics(metrics);
  followIngest(metrics, none, none);
  createCompactMetrics(metrics).followWatermark(machineClock, () => undefined);
  registerBacklogGauges(metrics, {
    reader: { state: never, findMessage: never },
    clock: machineClock,
    findEpoch: () => undefined,
  });
  registerTableGauges(metrics, () => new Map());
  createExportMetrics(metrics);
  registerRequestGauges(metrics, none, none);
  createSignInGuard({ metrics, logger: createLogger('silent', {}) }, false);
  registerServiceGauges(metrics, () => ({ problems: [], warnings: [], processes: [] }));
  registerDiskGauges(metrics, { folders: {}, reserveBytes: 0 });
  createSpanCounter(metrics);
}

/** More values than this are not listed. */
const mostLabelValues = 12;

/** Lists the values of a closed label: those that a process shows from its start. */
function showLabel(label: string, samples: readonly { readonly labels: Readonly<Record<string, unknown>> }[]): string {
  const values = [...new Set(samples.flatMap(({ labels }) => (label in labels ? [String(labels[label])] : [])))];
  const isClosed = values.length > 1 && values.length <= mostLabelValues;
  return `${code(label)}${isClosed ? `: ${values.join(', ')}` : ''}`;
}

async function renderMetrics(): Promise<string> {
  const { metrics, recorded } = createRecorder();
  registerAll(metrics);
  const shown = (await metrics.snapshot()) as {
    readonly name: string;
    readonly values: readonly { readonly labels: Readonly<Record<string, unknown>> }[];
  }[];
  const rows = recorded.map(({ name, type, help, labels }) => {
    const samples = shown.find((metric) => metric.name === name)?.values ?? [];
    const shownLabels = labels.map((label) => showLabel(label, samples)).join('; ');
    return [`${anchor(name)}${code(name)}`, type, shownLabels, help];
  });
  return page(
    'Metrics',
    "Prometheus metrics at `/metrics` of the operator's port.",
    'Counters restart at 0 with their process. A value that is not available within half a second is left out. [Problem codes](problems.md) are the values of `code`.',
    toTable(['Metric', 'Type', 'Labels', 'Description'], rows),
  );
}

/** A verb with its path below `tributary`; verbs of a family are one. */
interface ShownVerb {
  readonly path: string;
  readonly verb: CommandSpec;
}

function listShown(group: string, commandSpecs: readonly CommandSpec[]): readonly ShownVerb[] {
  const shown = new Map<string, ShownVerb>();
  for (const commandSpec of commandSpecs) {
    if (commandSpec.summary === undefined) continue;
    const { name, summary } = commandSpec.family ?? { name: commandSpec.name, summary: commandSpec.summary };
    const path = `${group} ${name}`;
    if (!shown.has(path)) shown.set(path, { path, verb: { ...commandSpec, summary } });
  }
  return [...shown.values()];
}

/** More choices than this are not listed. */
const mostChoices = 12;

function showChoices({ choices = [], placeholder }: OptionSpec<unknown>): string {
  const isListed = choices.length > 0 && choices.length <= mostChoices && placeholder !== choices.join('|');
  return isListed ? `: ${choices.join(', ')}` : '';
}

function renderWord(name: string, optionSpec: OptionSpec<unknown>): readonly string[] {
  const { description, isRepeatable, isOptional } = optionSpec;
  const use = isOptional === true ? 'optional' : 'required';
  return [
    code(`${name}${isRepeatable === true ? '...' : ''}`),
    use,
    sentence(`${description}${showChoices(optionSpec)}`),
  ];
}

function renderOption(name: string, optionSpec: OptionSpec<unknown>): readonly string[] {
  const { description, placeholder, letter, default: fallback, isRequired, isRepeatable } = optionSpec;
  const flags = [...(letter === undefined ? [] : [`-${letter}`]), flagOf(name)].join(', ');
  const use = [
    ...(isRequired === true ? ['required'] : []),
    ...(isRepeatable === true ? ['repeatable'] : []),
    ...(typeof fallback === 'string' || typeof fallback === 'number' ? [code(String(fallback))] : []),
  ];
  return [
    code(`${flags}${placeholder === undefined ? '' : ` ${placeholder}`}`),
    use.join(', '),
    sentence(`${description}${showChoices(optionSpec)}`),
  ];
}

function renderVerb({ path, verb }: ShownVerb, level: string): readonly string[] {
  const { summary = '', details = [], arguments: words = {}, options = {}, examples = [], exitCodes = {} } = verb;
  const rows = [
    ...Object.entries(words).map(([name, optionSpec]) => renderWord(name, optionSpec)),
    ...Object.entries(options).flatMap(([name, optionSpec]) =>
      optionSpec.isHidden === true ? [] : [renderOption(name, optionSpec)],
    ),
  ];
  const meanings = Object.entries(exitCodes).map(([number, meaning]) => `- Exit code ${number}: ${meaning}.`);
  return [
    `${level} ${path}`,
    [summary, ...details].map(sentence).join(' '),
    `\`\`\`text\n${usagesOf(verb, `tributary ${path}`).join('\n')}\n\`\`\``,
    ...(rows.length === 0 ? [] : [toTable(['Argument', 'Use or default', 'Description'], rows)]),
    ...(meanings.length === 0 ? [] : [meanings.join('\n')]),
    ...(examples.length === 0 ? [] : [`\`\`\`sh\n${examples.map((call) => `tributary ${call}`).join('\n')}\n\`\`\``]),
  ];
}

async function renderCommands(): Promise<string> {
  const commands = (await loadDeclaredCommands()).filter(({ summary }) => summary !== undefined);
  const index = commands.map(({ name, summary = '' }) => [`[${code(name)}](#${name})`, sentence(summary)]);
  const parts = commands.flatMap((command) =>
    'commands' in command
      ? [
          `## ${command.name}`,
          sentence(command.summary ?? ''),
          ...listShown(command.name, command.commands).flatMap((verb) => renderVerb(verb, '###')),
        ]
      : renderVerb({ path: command.name, verb: command }, '##'),
  );
  const common = Object.entries(commonOptions).map(([name, optionSpec]) => renderOption(name, optionSpec));
  return page(
    'Commands',
    'Every command of `tributary`, with its arguments, options and exit codes.',
    'Each command also takes `--help` and `--version`. Exit code 0 means done, 1 means rejected or failed.',
    toTable(['Option of every command', 'Use or default', 'Description'], common),
    toTable(['Command', 'Description'], index),
    ...parts,
  );
}

/** Formats the permitted values of a field by its schema. */
function showRange({
  enum: values,
  minimum,
  maximum,
  minLength,
  maxLength,
  pattern,
  decimalRange,
}: FieldSchema): string {
  if (values !== undefined) return values.join(', ');
  if (decimalRange !== undefined) return `${decimalRange.minimum} to ${decimalRange.maximum}`;
  if (minimum !== undefined) return maximum === undefined ? `at least ${minimum}` : `${minimum} to ${maximum}`;
  if (pattern !== undefined) return code(pattern);
  if (maxLength === undefined) return '';
  if (minLength === maxLength) return `${maxLength} characters`;
  return `${minLength === undefined ? 'at most' : `${minLength} to`} ${maxLength} characters`;
}

const schemaOf = ({ fields }: Dataset, name: string | undefined): FieldSchema | undefined =>
  (fields.find((field) => field.name === name) ?? eventFields.find((field) => field.name === name))?.schema;

function renderColumns(dataset: Dataset, columns: readonly Column[], prefix: string): string {
  const rows = columns.map(({ name, type, field, unit, description }) => {
    const schema = schemaOf(dataset, field);
    // The time of an event is sent in another unit than it is stored in.
    const values = [schema === undefined || type === 'TIMESTAMPTZ' ? '' : showRange(schema), unit ?? ''];
    return [
      `${anchor(`${prefix}${name}`)}${code(name)}`,
      type,
      field === undefined ? '' : code(field),
      values.filter((part) => part !== '').join(' '),
      description,
    ];
  });
  return toTable(['Column', 'Type', 'Field', 'Values', 'Description'], rows);
}

function renderColumnPage(): string {
  const others = [...datasets.values()].filter((dataset) => dataset !== events);
  const common = others
    .map(({ columns }) => columns.map(({ name }) => name))
    .reduce((shared, list) => shared.filter((name) => list.includes(name)));
  const [first = events] = others;
  return page(
    'Columns',
    'Columns of the tables of the lake, with the field of the import or the loaded file that each one stores.',
    'Every column may be NULL. A field of a loaded file has the name of its [selector](selectors.md).',
    '## events',
    events.description,
    renderColumns(events, events.columns, ''),
    '## Columns of every other table',
    renderColumns(
      first,
      first.columns.filter(({ name }) => common.includes(name)),
      'rows-',
    ),
    ...others.flatMap((dataset) => [
      `## ${dataset.table}`,
      dataset.description,
      renderColumns(
        dataset,
        dataset.columns.filter(({ name }) => !common.includes(name)),
        `${dataset.table}-`,
      ),
    ]),
  );
}

const orders = describeExportForm();

const datasetOf = (event: string): string => getExport(event).dataset.table;

/** Lists events; a dataset replaces the list of its events. */
function showEvents(names: readonly string[]): string {
  const others = orders.events.flatMap(({ name }) => (names.includes(name) ? [] : [name]));
  if (others.length === 0) return 'all';
  if (others.length > names.length) return codes(names);
  const tables = [...new Set(others.map(datasetOf))];
  const isWhole = tables.every((name) => !names.map(datasetOf).includes(name));
  return isWhole ? `all but those of dataset ${codes(tables)}` : `all but ${codes(others)}`;
}

const groups: Readonly<Record<(typeof orders)['selectors'][number]['group'], string>> = {
  event: 'Event',
  app: 'App',
  person: 'User',
  attribution: 'Attribution',
  device: 'Device',
  place: 'Place',
};

function renderSelectors(): string {
  const aliases = new Map([...eventAliases].map(([alias, name]) => [name, alias]));
  const eventRows = orders.events.map(({ name, about }) => [
    `${anchor(name)}${code(name)}`,
    code(datasetOf(name)),
    codes([aliases.get(name) ?? []].flat()),
    about,
  ]);
  const parts = Object.entries(groups).flatMap(([group, title]) => {
    const rows = orders.selectors
      .filter((selector) => selector.group === group)
      .map(({ name, type, meaning }) => [
        `${anchor(`selector-${name}`)}${code(name)}`,
        type,
        meaning,
        showEvents(orders.events.flatMap((event) => (event.selectors.includes(name) ? [event.name] : []))),
      ]);
    return [`### ${title}`, toTable(['Selector', 'Type', 'Description', 'Events'], rows)];
  });
  const shapes = { one: 'one value', set: 'several', list: 'several, repeated' } as const;
  const filterRows = parameters.map(({ name, shape, meaning, events: of }) => [
    `${anchor(`parameter-${name}`)}${code(name)}`,
    shapes[shape],
    meaning,
    of === undefined ? 'all' : showEvents(of),
  ]);
  return page(
    'Events, selectors and parameters of exports',
    'What an export request may name: one event, its selectors, and parameters that choose rows.',
    'A selector is a column of the result. It is empty for an event that does not have it.',
    '## Events',
    toTable(['Event', 'Dataset', 'Former name', 'Rows'], eventRows),
    '## Selectors',
    ...parts,
    '## Parameters',
    'The parameter `params[NAME]=VALUE` also selects custom events by one of their parameters.',
    toTable(['Parameter', 'Values', 'Description', 'Events'], filterRows),
  );
}

/** Renders the pages of docs/reference by file name, from the declarations that the program uses. */
export async function renderReference(): Promise<Readonly<Record<string, string>>> {
  return {
    'commands.md': await renderCommands(),
    'settings.md': renderSettings(),
    'problems.md': renderProblems(),
    'metrics.md': await renderMetrics(),
    'columns.md': renderColumnPage(),
    'selectors.md': renderSelectors(),
  };
}
