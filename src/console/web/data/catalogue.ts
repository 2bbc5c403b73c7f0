import { callApi, type AnswerOf } from '../frame/client.ts';
import { datesOf, type Period } from './volume.ts';

/** What custom events an app has; without a version there is no catalogue yet. */
export type Catalogue = AnswerOf<'/api/catalogue/v1/get.json'>;
export type CatalogueEvent = Catalogue['customEvents'][number];
/** A parameter of a custom event, as far as its events were looked at. */
export type CatalogueParameter = NonNullable<CatalogueEvent['parameters']>[number];

/** What is asked for: the custom events of an app in the last days, or one of them with its parameters. */
export interface CatalogueKeys {
  readonly idApp: string;
  readonly period: Period;
  readonly customEventName?: string;
}

/** Loads the custom events of an app, or one of them with its parameters. */
export function loadCatalogue({ period, ...keys }: CatalogueKeys, signal: AbortSignal): Promise<Catalogue> {
  const given = { ...keys, ...datesOf(period), days: '0' };
  return callApi('/api/catalogue/v1/get.json', { given, signal });
}
