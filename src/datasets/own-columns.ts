import type { Column } from './field-schema.ts';

/** The column of the database's date from which a row's place was found; no selector. */
export const geoDateColumn: Column = {
  name: 'geo_date',
  type: 'DATE',
  description:
    'Date of the database from which the country and the region were found; empty: the row said them itself.',
};

/** Columns of every table of rows that are the service's own: no field has their names. */
export const ownRowColumns: readonly Column[] = [
  { name: 'event_id', type: 'VARCHAR', description: 'Identity of the row: unique in its table.' },
  { name: 'date', type: 'DATE', description: 'UTC date of event_time.' },
  { name: 'id_app', type: 'BIGINT', description: 'The app that the row belongs to.' },
  { name: 'event_time', type: 'TIMESTAMPTZ', description: 'When the event happened.', unit: 'microseconds' },
  {
    name: 'received_at',
    type: 'TIMESTAMPTZ',
    description: 'When the service received the row, or began to load it.',
    unit: 'microseconds',
  },
  {
    name: 'available_at',
    type: 'TIMESTAMPTZ',
    description: 'When the row appeared in the lake; one value for each commit.',
    unit: 'microseconds',
  },
  { name: 'load_id', type: 'VARCHAR', description: 'The load that brought the row; empty: it was imported.' },
  {
    name: 'custom_event_params',
    type: 'MAP(VARCHAR, VARCHAR)',
    description: 'Parameters of the row, as params.name and params.value have them.',
  },
  geoDateColumn,
];
