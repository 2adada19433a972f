from taskscape.studies.pipeline import StudyConfig as StudyConfig
from taskscape.studies.pipeline import config_from as config_from
from taskscape.studies.pipeline import load_study as load_study
from taskscape.studies.pipeline import preset as preset
from taskscape.studies.pipeline import read_config as read_config
from taskscape.studies.pipeline import run_study as run_study
from taskscape.studies.result import StudyResult as StudyResult
