import type { AgentField, PlaceField } from '../../datasets/enriched-columns.ts';

/** Tells what addresses and User-Agents say, by the names of the fields that are filled. Nothing of it throws. */
export interface Enricher {
  /** Date of the database that places come from, YYYY-MM-DD; undefined while there is none. */
  readonly databaseDate: string | undefined;
  /** Another number for each database that was in use: what was told of a place may be told otherwise from then on. */
  readonly edition: number;
  findPlace(address: string): Readonly<Partial<Record<PlaceField, string | number>>> | undefined;
  parseAgent(userAgent: string): Readonly<Partial<Record<AgentField, string | number>>>;
  /** Takes in a database that has come in the place of the one before. */
  refresh(): Promise<void>;
  /** Rows were written without what could be told of them. */
  failed(error: unknown): void;
  /** Rows were written with it. */
  passed(): void;
}
