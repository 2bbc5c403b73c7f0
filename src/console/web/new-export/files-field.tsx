import { Check, Segments, Select } from '../components/controls.tsx';
import { formatCount } from '../components/format.ts';
import { LabelFields } from '../components/labels.tsx';
import { Card } from '../components/layout.tsx';
import { changeDraft, type DraftProps } from './draft.ts';

const dialectTitles: Readonly<Record<string, string>> = {
  excel: 'Excel',
  'excel-semicolon': 'Excel, semicolons and decimal commas',
};
/** The column of the event's time that people can read. */
const readableTime = 'dateTimeEvent';

/** Options for people: a column per parameter, readable times, CSV for spreadsheets. */
function PeopleOptions({ draft, dictionary }: DraftProps) {
  const { event, selectors, format, dialect, hasParamColumns } = draft;
  const { paramColumns, dialects = [] } = dictionary;
  const possible = dictionary.events.find(({ name }) => name === event)?.selectors ?? [];
  const others = selectors.filter((name) => name !== readableTime);
  return (
    <div class="row wide-gap">
      {paramColumns?.events.includes(event) === true && (
        <Check
          label={`One column per parameter, at most ${formatCount(paramColumns.limit)}`}
          checked={hasParamColumns}
          onChange={(change) => changeDraft({ hasParamColumns: change.currentTarget.checked })}
        />
      )}
      {possible.includes(readableTime) && (
        <Check
          label="Readable time of the event"
          checked={selectors.includes(readableTime)}
          onChange={(change) =>
            changeDraft({ selectors: change.currentTarget.checked ? [readableTime, ...others] : others })
          }
        />
      )}
      {format === 'csv' && dialects.length > 0 && (
        <Select
          label="CSV for"
          kind="inline"
          choices={[['', 'Programs'], ...dialects.map((name) => [name, dialectTitles[name] ?? name] as const)]}
          value={dialect}
          onChange={(change) => changeDraft({ dialect: change.currentTarget.value })}
        />
      )}
    </div>
  );
}

export function FilesField(props: DraftProps) {
  const { draft, dictionary } = props;
  const { format, compression, isByTime } = draft;
  const usual = dictionary.formats.find(({ name }) => name === format)?.usual ?? '';
  return (
    <Card id="files-title" title="Files">
      <div class="row wide-gap">
        <Segments
          legend="Format"
          name="format"
          choices={dictionary.formats.map(({ name, title }) => [name, title] as const)}
          value={format}
          onChoose={(chosen) => changeDraft({ format: chosen })}
        />
        <Select
          label="Compression"
          kind="inline"
          choices={[['', `Default (${usual})`], ...dictionary.compressions]}
          value={compression}
          onChange={(event) => changeDraft({ compression: event.currentTarget.value })}
        />
        <Check
          label="Sort by event time"
          checked={isByTime}
          onChange={(event) => changeDraft({ isByTime: event.currentTarget.checked })}
        />
      </div>
      <PeopleOptions {...props} />
      <LabelFields labels={draft} onChange={changeDraft} />
    </Card>
  );
}
